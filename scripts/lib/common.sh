# Sourced by the other scripts: the folders and versions of everything, and commands for other users.
set -euo pipefail
umask 022
unset RUST_BACKTRACE    # a server inherits it, and would print a backtrace for every error
unset CDPATH TAR_OPTIONS GZIP POSIXLY_CORRECT BINDIR PKGLIBDIR SHAREDIR    # a person may have set them for other work
case ${PG_CONFIG:-} in '' | /*) ;; */*) PG_CONFIG=$PWD/$PG_CONFIG ;; esac

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$TOP"
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
PG_VERSIONS=($(sed -nE 's/^pg([0-9]+) = .*/\1/p' Cargo.toml))    # the versions of PostgreSQL that idgen supports
PG_CANDIDATE=19    # the one that is not released yet, for which users get no packages
PG_DEFAULT=$(sed -nE 's/^default = \["pg([0-9]+)"\]$/\1/p' Cargo.toml)
INSTALL_SCRIPT=(sql/takeover/before.sql sql/idgen.sql sql/takeover/after.sql)    # its parts, in this order
TEST_KINDS=(lints released core backend build sql portable servers)    # of scripts/test, in its order
RUST_NEEDED=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
CARGO_FLAGS=(--locked --ignore-rust-version)    # pgrx asks for Rust 1.96, and builds with ours
export CARGO_TARGET_DIR=$TOP/target    # where scripts expect the files that cargo builds
export PATH="$TOP/.build/tools/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# rust_is_new FILE: whether that rustc is new enough.
rust_is_new() {
    local found
    found=$("$1" --version 2>/dev/null | cut -d' ' -f2) || return
    printf '%s\n' "$RUST_NEEDED" "$found" | sort -VC
}
# The first one on the PATH may be too old.
for dir in "${CARGO_HOME:-$HOME/.cargo}/bin" /usr/bin; do
    if rust_is_new rustc; then break; fi
    if rust_is_new "$dir/rustc"; then PATH=$dir:$PATH; fi
done

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; return; fi
    command -v sudo >/dev/null || die "this needs root: run it as root, or install sudo first"
    sudo "$@"
}
# The log of apt. Root may be at work in another user's checkout, and leaves nothing there.
SETUP_LOG=$TOP/.build/setup.log
[ "$(id -u)" != 0 ] || SETUP_LOG=/var/log/idgen-setup.log
# apt_get OPTION...: runs apt-get without its output, except the end of it if it fails.
apt_get() {
    as_root true || exit    # sudo may ask for a password
    mkdir -p "$(dirname "$SETUP_LOG")"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" </dev/null >>"$SETUP_LOG" 2>&1 ||
        { tail -n 15 "$SETUP_LOG" >&2; die "apt-get failed: see $SETUP_LOG"; }
}
apt_lists=old
read_lists() { [ "$apt_lists" = read ] || apt_get update; apt_lists=read; }
# candidate PACKAGE: prints the version that apt would install according to its lists.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]\)/\1/p' || true; }
# install_packages NAME...: says how much will be installed, and installs it.
install_packages() {
    local options=(-y --no-install-recommends --no-remove)
    say "installing $*"
    command -v apt-get >/dev/null || die "please install: $*"
    read_lists
    # This prints nothing if a package is not available; the next command reports that.
    LC_ALL=C apt-get -q --print-uris -o Debug::NoLocking=1 "${options[@]}" install "$@" 2>/dev/null |
        sed -nE 's/^.* ([0-9]+) newly installed.*/\1 new packages of the system:/p
            s/^Need to get ([0-9,.]+ [kMG]?B).* of archives.*/\1 to download,/p
            s/^After this operation, ([0-9,.]+ [kMG]?B) of additional disk.*/\1 on disk. They stay./p' | xargs || true
    echo "What apt prints is in ${SETUP_LOG#"$TOP/"}."
    apt_get "${options[@]}" -o DPkg::Lock::Timeout=300 install "$@"
}
# removal: prints the command that removes what scripts/setup has installed. A purge would delete clusters too.
removal() { echo "sudo apt-get remove --auto-remove $(xargs <.build/installed)"; }
# cargo_tool NAME VERSION: installs a subcommand of cargo if it is missing.
cargo_tool() {
    cargo "$1" --version >/dev/null 2>&1 || cargo install --locked --root .build/tools "cargo-$1" --version "=$2"
}
# run_kind KIND [ARG]...: runs the function test_KIND of a script.
run_kind() {
    declare -F "test_$1" >/dev/null ||
        die "there is no kind $1 of tests: $(declare -F | sed -n 's/^declare -f test_//p' | xargs)"
    "test_$1" "${@:2}"
}
# need PROGRAM PACKAGE...: installs the packages if the program is missing.
need() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || install_packages "${@:2}"; }

# PostgreSQL refuses to run as root, so root runs servers as the user that Debian's package creates.
if [ "$(id -u)" = 0 ]; then
    SERVER_USER=${SERVER_USER:-postgres}
    as_server() { runuser -u "$SERVER_USER" -- "$@"; }
else
    SERVER_USER=$(id -un)
    as_server() { "$@"; }
fi

# Scripts write to .build, and cargo to target. Servers are in HOUSE: also in .build or, if their user may not enter
# this checkout, OUTSIDE it.
HOUSE=$TOP/.build
OUTSIDE=/var/tmp/idgen-$(printf %s "$TOP" | cksum | cut -d' ' -f1)
house_is_reachable() {
    [ "$SERVER_USER" = "$(id -un)" ] || ! id "$SERVER_USER" >/dev/null 2>&1 ||
        (cd / && as_server test -x "$TOP")
}
house_is_reachable || HOUSE=$OUTSIDE
[ "$HOUSE" = "$TOP/.build" ] || [ ! -e "$HOUSE" ] || [ -O "$HOUSE" ] || die "$HOUSE belongs to another user"

# own_build: makes the folders to write to. Stops at once if another user owns them, as after "sudo make": a build would
# fail at its end, or leave files that the other user cannot delete.
own_build() {
    local dir owner
    for dir in target .build "$HOUSE"; do
        [ -e "$dir" ] && [ ! -O "$dir" ] || continue
        owner=$(stat -c %U "$dir")
        if [ "$owner" = root ]; then
            die "$dir belongs to root, who has built here: go on with sudo, or run 'sudo make clean' first"
        fi
        die "$dir belongs to $owner, who has built here: go on as $owner, without sudo, or run 'make clean' first"
    done
    [ -w . ] || { [ -e .build ] && [ -e target ]; } || die "you may not write to $TOP"
    mkdir -p .build "$HOUSE"
}

# The PostgreSQL to build for: that of PG_CONFIG or, if that is not set, the default version, the one on the PATH, or
# Debian's newest; "none" for a script that does not need PostgreSQL.
find_pg_config() {
    case ${PG_CONFIG:-} in none) return ;; ?*) echo "$PG_CONFIG"; return ;; esac
    local candidate
    for candidate in "/usr/lib/postgresql/$PG_DEFAULT/bin/pg_config" "$(command -v pg_config || true)" \
        $(printf '%s\n' "${PG_VERSIONS[@]}" | sort -rn | sed 's,.*,/usr/lib/postgresql/&/bin/pg_config,'); do
        # Debian has /usr/bin/pg_config even without PostgreSQL; it then fails.
        if "$candidate" --version >/dev/null 2>&1; then echo "$candidate"; return; fi
    done
}
# offered_postgresql: prints the version among this system's packages: the default or, if they lack it, the newest.
offered_postgresql() {
    local version
    for version in "$PG_DEFAULT" $(printf '%s\n' "${PG_VERSIONS[@]}" | grep -vx "$PG_CANDIDATE" | sort -rn); do
        if [ -n "$(candidate "postgresql-$version")" ]; then echo "$version"; return; fi
    done
}

# Tests use copies of the installed server, and the extension is installed only there. PostgreSQL finds its files
# relative to its program, so a copy keeps their relative places.
#   RELEASE_TREE  with the release in it, made by scripts/build
#   FAULTS_TREE   with a build that has the fault points of src/testing/fault.rs, made by "scripts/build faults"
#   OLDER_TREE    with the last release before this version, made by "scripts/build older"
PG_SOURCE=$(find_pg_config)
PG_MAJOR=$([ -n "$PG_SOURCE" ] || offered_postgresql)
PG_MAJOR=${PG_MAJOR:-$PG_DEFAULT}
if [ -n "$PG_SOURCE" ]; then
    PG_VERSION_TEXT=$("$PG_SOURCE" --version 2>/dev/null) ||
        die "$PG_SOURCE does not run: install that PostgreSQL first, or set PG_CONFIG to the pg_config of another"
    PG_MAJOR=$(printf %s "$PG_VERSION_TEXT" | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    [[ " ${PG_VERSIONS[*]} " == *" $PG_MAJOR "* ]] ||
        die "$PG_SOURCE is of $PG_VERSION_TEXT; idgen supports only ${PG_VERSIONS[*]}: set PG_CONFIG"
    PG_REGRESS=$(dirname "$("$PG_SOURCE" --pgxs)")/../test/regress/pg_regress
    RELEASE_TREE=$HOUSE/release$PG_MAJOR
    RELEASE_BIN=$RELEASE_TREE$("$PG_SOURCE" --bindir)
    FAULTS_TREE=$HOUSE/faults$PG_MAJOR
    FAULTS_BIN=$FAULTS_TREE$("$PG_SOURCE" --bindir)
    OLDER_TREE=$HOUSE/older$PG_MAJOR
    OLDER_BIN=$OLDER_TREE$("$PG_SOURCE" --bindir)
    FEATURES=(--no-default-features --features "pg$PG_MAJOR")
    FAULTS_FEATURES=(--no-default-features --features "pg$PG_MAJOR pg_test")
    export PGRX_PG_CONFIG_PATH=$PG_SOURCE
fi

# preloads: whether the servers of tests preload idgen. With IDGEN_PRELOAD=no, only those that need it do.
preloads() {
    case ${IDGEN_PRELOAD:-yes} in
        yes) return 0 ;;
        no) [ "$PG_MAJOR" -ge 17 ] || die "IDGEN_PRELOAD=no is for PostgreSQL 17 and newer, and this is $PG_MAJOR" ;;
        *) die "IDGEN_PRELOAD is $IDGEN_PRELOAD, and may be yes or no" ;;
    esac
    return 1
}

# copy_server TREE: makes a copy of the installed server, in place of a copy of another one.
copy_server() {
    local tree=$1 dir
    [ "$(cat "$tree/made-from" 2>/dev/null)" != "$PG_SOURCE $PG_VERSION_TEXT" ] || return 0
    rm -rf "$tree"
    for dir in "$("$PG_SOURCE" --bindir)" "$("$PG_SOURCE" --pkglibdir)" "$("$PG_SOURCE" --sharedir)"; do
        mkdir -p "$(dirname "$tree$dir")"
        cp -a "$dir" "$(dirname "$tree$dir")/"
    done
    # Debian keeps the headers of each version in a folder of its own, so a link is enough.
    dir=$("$PG_SOURCE" --includedir-server)
    mkdir -p "$(dirname "$tree$dir")"
    ln -s "$dir" "$tree$dir"
    echo "$PG_SOURCE $PG_VERSION_TEXT" >"$tree/made-from"
}

# find_older: sets the version of the last release before this one, its install script, and the commit after it, the one
# that has changed the version; this is empty if the history of git does not reach back so far.
find_older() {
    need git git
    script=$(printf '%s\n' sql/install/idgen--*.sql | grep -vF -- "--$VERSION.sql" | sort -V | tail -n1)
    version=${script#sql/install/idgen--}
    version=${version%.sql}
    next=$(git -c safe.directory="$TOP" log -1 --format=%H -G"^version = \"$version\"$" -- Cargo.toml) || true
}
# unpack_older: puts its source into a folder.
unpack_older() {
    source=.build/older-source
    rm -rf "$source"
    mkdir -p "$source"
    git -c safe.directory="$TOP" archive "$next^" | tar -x -C "$source"
}

# for_target TRIPLE NAME: prints the variable that sets NAME of [target.TRIPLE] in cargo's configuration.
for_target() { printf 'CARGO_TARGET_%s_%s\n' "$(tr a-z- A-Z_ <<<"$1")" "$2"; }
# The target of the build: this machine, or CARGO_BUILD_TARGET, as with scripts/server-root arm64. Cargo then builds
# in BUILT.
BUILT=target${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}
rust_host() {
    if [ -n "${CARGO_BUILD_TARGET:-}" ]; then echo "$CARGO_BUILD_TARGET"; else rustc -vV | sed -n 's/^host: //p'; fi
}

# missing_packages build|test: prints the missing Debian packages that are needed to build, or also to test.
missing_packages() {
    need_one() { eval "$2" >/dev/null 2>&1 || echo "$1"; }
    need_one "postgresql-$PG_MAJOR" '[ -x "$("$PG_SOURCE" --bindir)/initdb" ]'
    need_one "postgresql-server-dev-$PG_MAJOR" \
        '[ -f "$("$PG_SOURCE" --includedir-server)/postgres.h" ] && [ -x "$PG_REGRESS" ]'
    need_one gcc "command -v cc"
    need_one libc6-dev "test -f /usr/include/stdio.h"
    need_one clang "compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*'"
    need_one libpq-dev "test -f /usr/include/libpq-fe.h || test -f /usr/include/postgresql/libpq-fe.h"    # of idgenctl
    need_one libicu-dev "test -f /usr/include/unicode/ucol.h"    # headers of the server include it
    [ "$1" = test ] || return 0
    need_one sudo "command -v sudo"
    need_one make "command -v make"    # scripts/setup itself runs without it
}

# Reports a missing or outdated Rust, for which cargo may not give a helpful message.
check_rust() {
    rust_is_new rustc ||
        die "Rust $RUST_NEEDED is needed, and $(rustc --version 2>/dev/null || echo "no rustc is on the PATH"): $1"
}
