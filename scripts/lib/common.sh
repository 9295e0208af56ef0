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
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
install_packages() {
    say "installing $*"
    command -v apt-get >/dev/null || die "please install: $*"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends --no-remove \
        -o DPkg::Lock::Timeout=300 "$@"
}
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
# this checkout, outside it.
HOUSE=$TOP/.build
house_is_reachable() {
    [ "$SERVER_USER" = "$(id -un)" ] || ! id "$SERVER_USER" >/dev/null 2>&1 ||
        (cd / && as_server test -x "$TOP")
}
if ! house_is_reachable; then
    HOUSE=/var/tmp/idgen-$(printf %s "$TOP" | cksum | cut -d' ' -f1)
fi
mkdir -p "$HOUSE" "$TOP/.build"
[ "$HOUSE" = "$TOP/.build" ] || [ -O "$HOUSE" ] || die "$HOUSE belongs to somebody else"

find_pg_config() {
    if [ -n "${PG_CONFIG:-}" ]; then echo "$PG_CONFIG"; return; fi
    local candidate
    for candidate in "/usr/lib/postgresql/$PG_DEFAULT/bin/pg_config" "$(command -v pg_config || true)"; do
        # Debian has /usr/bin/pg_config even without PostgreSQL; it then fails.
        if "$candidate" --version >/dev/null 2>&1; then echo "$candidate"; return; fi
    done
}

# Tests use copies of the installed server, and the extension is installed only there. PostgreSQL finds its files
# relative to its program, so a copy keeps their relative places.
#   RELEASE_TREE  with the release in it, made by scripts/build
#   FAULTS_TREE   with a build that has the fault points of src/fault.rs, made by "scripts/build faults"
PG_MAJOR=$PG_DEFAULT
PG_SOURCE=$(find_pg_config)
if [ -n "$PG_SOURCE" ]; then
    PG_VERSION_TEXT=$("$PG_SOURCE" --version) ||
        die "$PG_SOURCE does not run: install that PostgreSQL first, or set PG_CONFIG to the pg_config of another"
    PG_MAJOR=$(printf %s "$PG_VERSION_TEXT" | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    [[ " ${PG_VERSIONS[*]} " == *" $PG_MAJOR "* ]] ||
        die "$PG_SOURCE is of $PG_VERSION_TEXT; idgen supports only ${PG_VERSIONS[*]}: set PG_CONFIG"
    PG_REGRESS=$(dirname "$("$PG_SOURCE" --pgxs)")/../test/regress/pg_regress
    RELEASE_TREE=$HOUSE/release$PG_MAJOR
    RELEASE_BIN=$RELEASE_TREE$("$PG_SOURCE" --bindir)
    FAULTS_TREE=$HOUSE/faults$PG_MAJOR
    FAULTS_BIN=$FAULTS_TREE$("$PG_SOURCE" --bindir)
    FEATURES=(--no-default-features --features "pg$PG_MAJOR")
    FAULTS_FEATURES=(--no-default-features --features "pg$PG_MAJOR pg_test")
    export PGRX_PG_CONFIG_PATH=$PG_SOURCE
fi

# preloads: whether the servers of tests preload idgen. With IDGEN_PRELOAD=no those do that need it.
preloads() {
    case ${IDGEN_PRELOAD:-yes} in
        yes) return 0 ;;
        no) [ "$PG_MAJOR" -ge 17 ] || die "IDGEN_PRELOAD=no is for PostgreSQL 17 and newer, and this is $PG_MAJOR" ;;
        *) die "IDGEN_PRELOAD is $IDGEN_PRELOAD, and may be yes or no" ;;
    esac
    return 1
}

# copy_server TREE: makes a copy of the installed server, and replaces a copy of another one.
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

# for_target TRIPLE NAME: prints the variable that sets NAME of [target.TRIPLE] in cargo's configuration.
for_target() { printf 'CARGO_TARGET_%s_%s\n' "$(tr a-z- A-Z_ <<<"$1")" "$2"; }
# The target of the build: this machine, or CARGO_BUILD_TARGET, as with scripts/server-root arm64. Cargo then builds
# in BUILT.
BUILT=target${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}
rust_host() { if [ -n "${CARGO_BUILD_TARGET:-}" ]; then echo "$CARGO_BUILD_TARGET"; else rustc -vV | sed -n 's/^host: //p'; fi; }

# missing_packages build|test: prints the missing Debian packages that are needed to build, or also to test.
missing_packages() {
    local name
    need_one() { eval "$2" >/dev/null 2>&1 || echo "$1"; }
    need_one "postgresql-$PG_MAJOR" '[ -x "$("$PG_SOURCE" --bindir)/initdb" ]'
    need_one "postgresql-server-dev-$PG_MAJOR" '[ -f "$("$PG_SOURCE" --includedir-server)/postgres.h" ] && [ -x "$PG_REGRESS" ]'
    need_one gcc "command -v cc"
    need_one libc6-dev "test -f /usr/include/stdio.h"
    need_one clang "compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*'"
    need_one libpq-dev "test -f /usr/include/libpq-fe.h || test -f /usr/include/postgresql/libpq-fe.h"    # of idgenctl
    need_one libicu-dev "test -f /usr/include/unicode/ucol.h"    # headers of the server include it
    [ "$1" = test ] || return 0
    need_one sudo "command -v sudo"
}

# Reports a missing or outdated Rust, for which cargo may not give a helpful message.
check_rust() {
    rust_is_new rustc ||
        die "Rust $RUST_NEEDED is needed, and $(rustc --version 2>/dev/null || echo "no rustc is on the PATH")"
}
