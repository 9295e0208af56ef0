# Sourced by the tests here, which define sql: it runs SQL on their server.
set -euo pipefail
minted=0

promise() { printf '\n-- %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# same WHAT EXPECTED FOUND
same() { [ "$2" = "$3" ] || die "$1: expected \"$2\", found \"$3\""; }

# fails MESSAGE COMMAND [ARG]...
fails() {
    local said
    ! said=$("${@:2}" 2>&1) || die "this should have failed: ${*:2}"
    [[ $said == *"$1"* ]] || die "expected \"$1\", found \"$said\""
}

# refused MESSAGE QUERY
refused() { fails "$1" sql "$2"; }

# The primary key refuses an id that was there before.
mint() {
    sql "INSERT INTO minted (n) SELECT generate_series(1, 10000)"
    minted=$((minted + 10000))
    same "rows" "$minted" "$(sql "SELECT count(*) FROM minted")"
}

# begin_minting: the table that mint fills, and the first ids of it.
begin_minting() {
    sql "CREATE TABLE minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer)"
    mint
    same "shards" 5 "$(sql "SELECT DISTINCT (snowflake_decode(id)).shard FROM minted")"
}

# sql_tests PG_CONFIG: those that a server with other uses can run.
sql_tests() {
    install -d -o postgres .build/installcheck
    runuser -u postgres -- env "PG_CONFIG=$1" scripts/test installcheck
}

# left_files: what is left of idgen, but for this checkout.
left_files() {
    find / \( -path "$PWD" -o -path /proc -o -path /dev -o -path /checkout "$@" \) -prune -o -name '*idgen*' -print
}
