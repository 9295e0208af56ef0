# Sourced by the other scripts: where things are, and how to start what needs another user.
set -euo pipefail
umask 022
unset RUST_BACKTRACE    # a server inherits it, and would print a backtrace for every error

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$TOP"
PGRX_VERSION=0.18.1
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
INSTALL_SCRIPT=(sql/takeover/before.sql sql/idgen.sql sql/takeover/after.sql)    # of these, in this order
TEST_KINDS=(lints released pure model backend build sql portable servers)    # of scripts/test, in its order
export PATH="$TOP/target/tools/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
install_packages() {
    say "installing $*"
    command -v apt-get >/dev/null || die "please install: $*"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"
}
# need PROGRAM PACKAGE...: installs the packages where the program is missing.
need() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || install_packages "${@:2}"; }

# PostgreSQL refuses to run as root: as root, servers run as the user that Debian's package makes.
if [ "$(id -u)" = 0 ]; then
    SERVER_USER=${SERVER_USER:-postgres}
    as_server() { runuser -u "$SERVER_USER" -- "$@"; }
else
    SERVER_USER=$(id -un)
    as_server() { "$@"; }
fi

# Servers live under target/, or, where the server's user may not enter this folder, outside of it.
HOUSE=$TOP/target
house_is_reachable() {
    [ "$SERVER_USER" = "$(id -un)" ] || ! id "$SERVER_USER" >/dev/null 2>&1 ||
        (cd / && as_server test -x "$TOP")
}
if ! house_is_reachable; then
    HOUSE=/var/tmp/idgen-$(printf %s "$TOP" | cksum | cut -d' ' -f1)
fi
mkdir -p "$HOUSE" "$TOP/target"
[ "$HOUSE" = "$TOP/target" ] || [ -O "$HOUSE" ] || die "$HOUSE belongs to somebody else"

find_pg_config() {
    if [ -n "${PG_CONFIG:-}" ]; then echo "$PG_CONFIG"; return; fi
    local candidate
    for candidate in /usr/lib/postgresql/15/bin/pg_config "$(command -v pg_config || true)"; do
        if [ -x "$candidate" ]; then echo "$candidate"; return; fi
    done
}

# Servers of our own are copies of the installed one, and the extension is installed only there.
# PostgreSQL finds its files relative to its program, so a copy keeps their relative places.
#   PG_TREE       what builds see, and where `cargo pgrx test` installs its debug build with the fault
#                 points of src/fault.rs
#   RELEASE_TREE  the same with the release in it, made by scripts/build
PG_SOURCE=$(find_pg_config)
if [ -n "$PG_SOURCE" ]; then
    PG_VERSION_TEXT=$("$PG_SOURCE" --version)
    PG_MAJOR=$(printf %s "$PG_VERSION_TEXT" | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
    PG_REGRESS=$(dirname "$("$PG_SOURCE" --pgxs)")/../test/regress/pg_regress
    PG_TREE=$HOUSE/pg$PG_MAJOR
    PG_BIN=$PG_TREE$("$PG_SOURCE" --bindir)
    RELEASE_TREE=$HOUSE/release$PG_MAJOR
    RELEASE_BIN=$RELEASE_TREE$("$PG_SOURCE" --bindir)
    FEATURES=(--no-default-features --features "pg$PG_MAJOR")
    export PGRX_HOME=$TOP/target/pgrx
fi

# Runs tests on real servers: those whose names contain an argument, or all.
cluster_tests() {
    local old dir=$HOUSE/cluster
    install -d "$dir"
    [ "$(id -u)" != 0 ] || chown "$SERVER_USER" "$dir"
    # What an interrupted run left behind.
    for old in "$dir"/*/; do
        if [ -f "$old/postmaster.pid" ]; then
            as_server "$PG_BIN/pg_ctl" -D "$old" -s -m immediate stop || true
        fi
    done
    rm -rf "$dir"/*
    IDGEN_HOUSE=$HOUSE IDGEN_SERVER_USER=$SERVER_USER \
        IDGEN_PG_BIN=$RELEASE_BIN IDGEN_FAULTS_BIN=$PG_BIN IDGEN_OLDER_BIN=${IDGEN_OLDER_BIN:-$RELEASE_BIN} \
        IDGEN_FAKETIME=$(find /usr/lib -name libfaketime.so.1 | head -n1) \
        cargo test --package idgen-tests --test cluster -- "$@"
}

# Tests inside a backend; leaves the build with the fault points in PG_TREE.
pg_tests() {
    local options=()
    if [ "$(id -u)" = 0 ]; then
        # The server's user initialises this folder itself, hence its parent is that user's.
        install -d -o "$SERVER_USER" "$HOUSE/pg_test"
        options=(--runas "$SERVER_USER" --pgdata "$HOUSE/pg_test/data")
    fi
    cargo pgrx test "pg$PG_MAJOR" --no-default-features "${options[@]}"
}
