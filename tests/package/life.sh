#!/usr/bin/env bash
# The life of the Debian package on a server, as its README.Debian describes it. "scripts/test-package package" runs
# this as root, in a Debian made for it.
#   life.sh MAJOR VERSION FIRST.deb SECOND.deb TARBALL
. tests/package/common.sh
nn=$1 version=$2 first=$3 second=$4 tarball=$5
extension=/usr/share/postgresql/$nn/extension
FORCE_JIT="SET jit = on; SET jit_above_cost = 0; SET jit_optimize_above_cost = 0; SET jit_inline_above_cost = 0;"
log=/var/log/postgresql/postgresql-$nn-main.log
trap '[ $? = 0 ] || tail -n 20 "$log" 2>/dev/null || true' EXIT
apt() { apt-get -qqy -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/dev/null; }
server() { pg_ctlcluster "$nn" main "$@"; }
sql() { runuser -u postgres -- psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$@"; }
postmaster() { head -n1 "/var/lib/postgresql/$nn/main/postmaster.pid"; }

promise "neither Rust nor PostgreSQL is installed here"
for program in rustc cargo psql pg_ctlcluster; do
    ! command -v "$program" || die "$program is installed"
done

promise "apt installs the package and the server that it needs"
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d    # no package starts a service here
chmod +x /usr/sbin/policy-rc.d
apt install "$first"
echo "listen_addresses = ''" > "/etc/postgresql/$nn/main/conf.d/local.conf"    # the machine may already use the port
server start

promise "the files that its pages link to are installed"
for file in README.md docs/install.md docs/examples/remove.sql portable/README.md portable/idgen.sql; do
    [ -f "/usr/share/doc/postgresql-$nn-idgen/$file" ] || die "there is no $file"
done

promise "idgenctl is beside the programs of the server, and runs; packages for two versions share no folder"
program=/usr/lib/postgresql/$nn/bin/idgenctl
same_program "$version" "$program"
same "folders of the package" "/usr/lib/postgresql/$nn /usr/share/doc/postgresql-$nn-idgen /usr/share/postgresql/$nn" \
    "$(dpkg -L "postgresql-$nn-idgen" | while read -r file; do [ -d "$file" ] || echo "$file"; done |
        sed -E "s#^(/usr/(share/doc|lib/postgresql|share/postgresql)/[^/]*)/.*#\1#" | sort -u | xargs)"

promise "without a preload, it says what to do"
sql "CREATE EXTENSION idgen"
refused '"idgen" must be loaded via "shared_preload_libraries"' "SELECT snowflake_next_id(5)"

promise "set up as README.Debian says, next to libraries that are preloaded already, it mints for the requested shard"
sql "DROP EXTENSION idgen"
sql "ALTER SYSTEM SET shared_preload_libraries = pg_stat_statements"
server restart
sudo() { if [ "$1" = -u ]; then runuser -u "$2" -- "${@:3}"; else "$@"; fi; }
eval "$(zcat -f "/usr/share/doc/postgresql-$nn-idgen/README.Debian"* |
    awk '/^    / { print; found = 1; next } found { exit }' | sed 's/enable mydb/enable --yes postgres/')"
same "libraries" "pg_stat_statements, idgen" "$(sql "SHOW shared_preload_libraries")"
begin_minting

promise "its SQL tests pass"
sql_tests "/usr/lib/postgresql/$nn/bin/pg_config"

promise "an upgrade does not restart the server, which keeps its old library"
# A database with the oldest release. Packages have only the scripts that update from it.
oldest=$(printf '%s\n' sql/install/idgen--*.sql | sort -V | head -n1)
cp "$oldest" "$extension"
oldest=${oldest#*--}
sql "CREATE DATABASE older"
sql "CREATE EXTENSION idgen VERSION '${oldest%.sql}'" -d older
rm "$extension/idgen--$oldest"
before=$(postmaster)
apt install "$second"
same "process of the server" "$before" "$(postmaster)"
grep -q '/idgen.so (deleted)$' "/proc/$before/maps" || die "the server does not use the old library"
mint

promise "after a restart the server has the new library and repeats no id"
server restart
! grep '/idgen.so (deleted)$' "/proc/$(postmaster)/maps" || die "the server still uses the old library"
mint

promise "ALTER EXTENSION UPDATE leads from the oldest release to this one"
sql "ALTER EXTENSION idgen UPDATE" -d older
same "version" "$version" "$(sql "SELECT extversion FROM pg_extension WHERE extname = 'idgen'" -d older)"
sql "DROP DATABASE older"

promise "removed too early: minting fails, and the server does not start again"
pg_conftool "$nn" main set shared_preload_libraries 'auto_explain, idgen'    # in addition to what ALTER SYSTEM has set
apt remove "postgresql-$nn-idgen"
refused 'could not access file "idgen"' "INSERT INTO minted (n) VALUES (1)"
server stop
! server start 2>/dev/null || die "the server started without the library that it names"
grep -q 'FATAL:  could not access file "idgen"' "$log" || die "the log does not say why"

promise "README.Debian says how to recover; the other library stays, and rows keep their ids"
pg_conftool "$nn" main set shared_preload_libraries auto_explain
pg_conftool "/var/lib/postgresql/$nn/main/postgresql.auto.conf" remove shared_preload_libraries
server restart
same "libraries" auto_explain "$(sql "SHOW shared_preload_libraries")"
same "rows" "$minted" "$(sql "SELECT count(*) FROM minted")"
refused 'could not access file "idgen"' "INSERT INTO minted (n) VALUES (1)"
refused "other objects depend on it" "DROP EXTENSION idgen"
sql "$(sql "SELECT statement FROM idgen_dependents WHERE statement IS NOT NULL")"
sql "DROP EXTENSION idgen; DROP SCHEMA idgen"

promise "after a purge, no file is left"
apt install "$second"
apt purge "postgresql-$nn-idgen"
same "files" "" "$(left_files)"

promise "the tarball accepts only the pg_config of its own version; ids continue after the mark"
tar -C /root -xzf "$tarball"
install=$(echo /root/idgen-"$version"-pg"$nn"-*/install)
export PG_CONFIG=/usr/lib/postgresql/$nn/bin/pg_config
printf '#!/bin/sh\necho "PostgreSQL 1%s.4"\n' "$nn" > /root/pg_config
chmod +x /root/pg_config
fails "this package is for PostgreSQL $nn" env PG_CONFIG=/root/pg_config "$install"
fails "such as: PG_CONFIG=$PG_CONFIG $install" env -u PG_CONFIG "$install"
fails "you may not write to" runuser -u postgres -- sh <"$install"
"$install"
same_program "$version" "$program"
runuser -u postgres -- "${PG_CONFIG%/*}/idgenctl" enable --yes postgres
server restart
sql "ALTER TABLE minted ALTER id SET DEFAULT snowflake_next_id(5)"
mint

promise "errors are raised, caught and survived in a process into which LLVM has brought its own unwinder"
sql "$FORCE_JIT SELECT 1 / pg_jit_available()::integer" >/dev/null
sql "$FORCE_JIT DO \$\$ BEGIN
    FOR i IN 1..200 LOOP
        BEGIN
            PERFORM sum(snowflake_next_id(8192 - n)) FROM generate_series(100, i % 2, -1) n;
            ASSERT i % 2 = 1, 'no error for shard 8192';
        EXCEPTION WHEN invalid_parameter_value THEN
            ASSERT i % 2 = 0, sqlerrm;
        END;
    END LOOP;
    ASSERT (SELECT count(*) > 0 FROM regexp_split_to_table(pg_read_file('/proc/self/maps'), '\n') line
        WHERE line LIKE '%libLLVM%'), 'no LLVM in this process';
END \$\$"
mint

promise "its SQL tests pass"
sql_tests "$PG_CONFIG"

promise "it deletes what it has installed, once no server needs it"
fails "still in use: /var/lib/postgresql/$nn/main" "$install" remove
server stop
fails "still in use: /var/lib/postgresql/$nn/main/postgresql.auto.conf" "$install" remove
pg_conftool "/var/lib/postgresql/$nn/main/postgresql.auto.conf" remove shared_preload_libraries
"$install" remove
same "files" "" "$(left_files -o -path /root)"
