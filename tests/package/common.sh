# Sourced by the tests in this folder. Each defines sql, which runs SQL on its server.
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

# The primary key refuses repeated ids.
mint() {
    sql "INSERT INTO minted (n) SELECT generate_series(1, 10000)"
    minted=$((minted + 10000))
    same "rows" "$minted" "$(sql "SELECT count(*) FROM minted")"
}

# begin_minting: creates the table that mint fills, and mints its first ids.
begin_minting() {
    sql "CREATE TABLE minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer)"
    mint
    same "shards" 5 "$(sql "SELECT DISTINCT (snowflake_decode(id)).shard FROM minted")"
}

# sql_tests PG_CONFIG: runs the SQL tests that do not need a server of their own.
sql_tests() {
    install -d -o postgres .build/installcheck
    runuser -u postgres -- env "PG_CONFIG=$1" scripts/test installcheck
}

# same_program VERSION FILE: the program of this version runs, with its libraries.
same_program() { same "idgenctl" "idgenctl $1" "$("$2" --version)"; }

# left_files: prints the files that are left of idgen outside this checkout.
left_files() {
    find / \( -path "$PWD" -o -path /proc -o -path /dev -o -path /checkout "$@" \) -prune -o -name '*idgen*' -print
}
