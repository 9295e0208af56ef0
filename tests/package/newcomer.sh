#!/usr/bin/env bash
# Does what a newcomer does who has only the README: pastes its blocks or runs the demo, as an ordinary user with sudo
# and a private home. "scripts/test-package readme" runs this as root, in a Debian made for it, which has no make,
# PostgreSQL or Rust.
#   newcomer.sh paste | demo REPOSITORY    clones this repository
. tests/package/common.sh
kind=$1 repository=$2
page=$PWD/README.md
home=/home/ada
checkout=$home/idgen
export DEBIAN_FRONTEND=noninteractive

# ada COMMAND [ARG]...: runs a command as the user ada, in the folder $where.
where=$home
ada() {
    runuser -u ada -- env -u CARGO_HOME -u RUSTUP_HOME -u CARGO_TARGET_DIR -u PG_CONFIG -u MAKELEVEL -u MAKEFLAGS \
        -C "$where" HOME=$home USER=ada "$@"
}
# paste_all TEXT: pastes the text, and answers yes. There is no terminal on which idgenctl would ask.
paste_all() { printf '%s\n' "$1" && ada env ARGS=--yes bash -c "$1" < <(yes); }
sql() { runuser -u postgres -- env -C / psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$@"; }
# blocks LANGUAGE [SECTION]: prints the blocks of the README or of one section.
blocks() {
    awk -v language="$1" -v section="${2:-}" -v within="${2:-yes}" '
        /^## / { within = $0 == "## " section }
        section == "" { within = 1 }
        $0 == "```" && shown { shown = 0; print "" }
        shown { print }
        $0 == "```" language && within { shown = 1 }' "$page"
}
# stops WHAT COMMAND [ARG]...: the command fails at once, with a single line that contains this text.
stops() {
    local said start=$SECONDS
    ! said=$(ada "${@:2}" 2>&1) || die "this should have failed: ${*:2}"
    said=$(grep -v '^make: \|^scripts/' <<<"$said")
    [[ $said == "error: "*"$1"* ]] && [ "$(wc -l <<<"$said")" = 1 ] || die "expected \"$1\", found \"$said\""
    [ $((SECONDS - start)) -lt 10 ] || die "this has taken $((SECONDS - start)) s to fail: ${*:2}"
    echo "$said"
}
took() { echo "This took $((SECONDS - $1)) s."; }

promise "a machine of ada's"
update-ca-certificates >/dev/null
apt-get update -qq
useradd -m -s /bin/bash ada
chmod 700 $home
echo 'ada ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada
[ ! -f /config.toml ] || install -D -o ada -m 644 /config.toml $home/.cargo/config.toml
chown -R ada $home
grep -q " $(uname -n)$" /etc/hosts 2>/dev/null ||
    echo "127.0.0.1 localhost $(uname -n)" >>/etc/hosts    # or sudo complains
# There is no systemd here. Without this file, Debian 13 then starts no service.
printf '#!/bin/sh\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
printf '#!/bin/sh\nexec service "$2" "$1"\n' >/usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
url=$(sed -nE 's/.*git clone (http[^ ]+).*/\1/p' "$page" | head -n1)
printf '[safe]\n    directory = *\n[url "%s"]\n    insteadOf = %s\n' "$repository" "${url:-none:}" >$home/.gitconfig
for program in rustc cargo psql pg_ctlcluster make; do
    ! command -v "$program" || die "$program is installed"
done

if [ "$kind" = demo ]; then
    apt-get install -qqy --no-install-recommends git make >/dev/null
    ada git clone -q "$repository" idgen
    where=$checkout

    promise "without Rust and PostgreSQL, each target says in one line what to do"
    stops "run 'make setup'" make install
    stops "'make setup' installs it" make
    ada make clean
    mv /usr/bin/sudo /usr/bin/sudo.away
    stops "install sudo" make setup
    mv /usr/bin/sudo.away /usr/bin/sudo
    stops "does not run: install that PostgreSQL first" make setup PG_CONFIG=/usr/lib/postgresql/14/bin/pg_config

    promise "the demo"
    start=$SECONDS
    ada make demo 2>&1 | tee /root/demo
    took $start
    ada bash -c 'time make -s build'
    same "clusters" "" "$(pg_lsclusters -h)"
    [ "$(sed '/^== building/,$d' /root/demo | wc -l)" -lt 15 ] || die "the demo begins with too many lines"
    grep -q 'Look around:' /root/demo && grep -q 'Delete what was built' /root/demo ||
        die "the demo does not say what stays"
    grep -q 'sudo apt-get remove --auto-remove .*libpq-dev' /root/demo ||
        die "the demo does not say what it has installed"
    same "rows" 1 "$(ada make -s psql ARGS="-AtXc 'SELECT 1'")"
    ada make -s clean-demo
    stops "run 'make demo' first" make psql

    promise "what root installs does not get in her way"
    ada sudo make -s setup
    [ -z "$(find "$checkout" ! -user ada)" ] || die "root has left files: $(find "$checkout" ! -user ada)"

    promise "a user who has not built here is told so at once, and nothing is left when all is deleted"
    stops "go on as ada" sudo make
    stops "go on as ada" sudo make demo
    ada make clean
    ada sudo mkdir target .build
    stops "sudo make clean" make
    stops "sudo make clean" make demo
    stops "sudo make clean" make clean
    ada sudo make clean
    for path in "$checkout"/{target,.build} /var/tmp/idgen-* /tmp/idgen-*; do
        [ ! -e "$path" ] || die "$path is left"
    done

    promise "its packages are removed by the command that it names"
    ada sh -c "$(sed -n 's/^Remove the packages[^:]*: *//p' /root/demo)" < <(yes) >/dev/null
    ! command -v clang || die "clang is still installed"
    exit
fi

promise "every block of the shell, pasted"
start=$SECONDS
# A newcomer stops at an error.
all=$(blocks sh Install | sed 's/^$/[ $? = 0 ] || exit 1/')
clone="git clone -q '$repository' idgen && cd idgen &&"
[ -n "$url" ] || all=${all/make setup/"$clone make setup"}
paste_all "$all
pwd >/tmp/where"
took $start
where=$(cat /tmp/where)
rm /tmp/where

promise "every statement on the page, in the same database"
text=$(blocks sql)
printf '%s\n' "$text"
ada sudo -iu postgres psql -X -v ON_ERROR_STOP=1 mydb <<<"$text"

promise "pasting the installing block again changes nothing"
state() {
    sql "SELECT concat(current_setting('shared_preload_libraries'), ' ', current_setting('search_path'))" -d mydb
}
before=$(state)
echo "$before"
start=$SECONDS
paste_all "$(blocks sh Install | awk 'BEGIN { RS = "" } /enable/ { print; exit }')"
took $start
same "settings" "$before" "$(state)"
same "warning" "" "$(sql "SELECT warning FROM idgen.idgen_status" -d mydb)"

promise "files are deleted only when the server no longer needs them"
stops "is still in use" make -s uninstall
ada sudo make install >/dev/null
ada make clean
nn=$(sql "SHOW server_version_num" | cut -c1-2)
pg_conftool "/var/lib/postgresql/$nn/main/postgresql.auto.conf" remove shared_preload_libraries
pg_ctlcluster "$nn" main restart
ada make -s uninstall
same "files" "" "$(find / -xdev \( -path "$PWD" -o -path $home -o -path /checkout -o -path /proc \) -prune \
    -o -name '*idgen*' ! -name '*uuidgen*' -print)"
