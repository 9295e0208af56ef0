#!/usr/bin/env bash
# Moves a logical shard, a schema of a database, to another server while clients go on.
#
#     move-shard.sh SOURCE TARGET SCHEMA SHARD
#     move-shard.sh 'host=old dbname=app' 'host=new dbname=app' insta5 5
#
# SOURCE and TARGET are connection strings for superusers; psql, pg_dump and pg_restore are on the PATH. No
# row is lost, no id is minted twice, and ids of the target are greater than those of the source.
#
# While the rows are copied, clients can neither read nor write the schema. Statements fail on the source with
# 3F000 or 42P01 (there is no such schema, or table) or 55000 (the shard is not allowed), and on the target in
# the same way until the move is done. So a client that gets one of these tries again, on the target.
#
# What goes wrong is undone, until the moment when the target may mint. In the end the source has the old rows
# still, in SCHEMA_moved, for you to drop.
#
# What is needed: one idgen.epoch on both. A list in idgen.allowed_shards of the target, without the shard (an
# empty list means every shard, and only one server may mint for this one). Nothing outside of the schema that
# uses its tables, and nothing inside that the target lacks, such as roles or the types of another schema.
set -euo pipefail
export PGOPTIONS="${PGOPTIONS-} -c search_path=pg_catalog"
COMMAND_TIMEOUT=${COMMAND_TIMEOUT:-30}    # s, for the commands that began before the shard was withdrawn

[ $# = 4 ] || { echo "usage: move-shard.sh SOURCE TARGET SCHEMA SHARD" >&2; exit 2; }
source=$1 target=$2 schema=$3 shard=$4
moved=${schema}_moved

say() { printf '%s  %s\n' "$(date -u +%T.%3N)" "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# on SERVER SQL: what the SQL prints, in a session of its own.
on() {
    psql -X -q -At -d "$1" -v ON_ERROR_STOP=1 -v schema="$schema" -v moved="$moved" -v shard="$shard" \
        -v idgen="${idgen-}" -v past="${past-}" <<<"$2"
}

# What a server may mint for: the rows n of "allowed".
allowed_shards="WITH allowed AS (
        SELECT n
        FROM string_to_table(
                 coalesce(nullif(trim(current_setting('idgen.allowed_shards')), ''), '0-8191'), ',') AS entry,
             generate_series(split_part(entry, '-', 1)::integer, split_part(entry, '-', -1)::integer) AS n)"

# list SERVER with|without: its idgen.allowed_shards with the shard in it, or without.
list() {
    local added=false
    [ "$2" = without ] || added=true
    on "$1" "$allowed_shards, wanted AS (
            SELECT n FROM allowed WHERE n <> :shard UNION SELECT :shard WHERE $added
        ), range AS (
            SELECT min(n) AS first, max(n) AS last
            FROM (SELECT n, n - row_number() OVER (ORDER BY n) AS gaps FROM wanted) AS numbered
            GROUP BY gaps
        )
        SELECT string_agg(CASE first WHEN last THEN first::text ELSE first || '-' || last END, ','
                          ORDER BY first)
        FROM range"
}

# allow SERVER LIST: changes the setting, and waits until the postmaster has told every backend.
allow() {
    on "$1" "ALTER SYSTEM SET idgen.allowed_shards = '$2'"
    on "$1" "SELECT pg_reload_conf()" >/dev/null
    for _ in {1..100}; do
        if [ "$(on "$1" "SHOW idgen.allowed_shards")" = "$2" ]; then return 0; fi
        sleep 0.1
    done
    die "idgen.allowed_shards does not become \"$2\" on $1: is it set on the command line?"
}

undo=no
finish() {
    local code=$?
    trap - EXIT
    case $undo in
        possible)
            say "undoing what was done"
            on "$target" 'SET client_min_messages = warning; DROP SCHEMA IF EXISTS :"moved" CASCADE' &&
                allow "$source" "$allowed" &&
                on "$source" "SELECT format('ALTER SCHEMA %I RENAME TO %I', nspname, :'schema')
                              FROM pg_namespace WHERE nspname = :'moved' \gexec" &&
                say "undone: the source has the shard, as before" ||
                say "not all of it; the source had $schema, not $moved, and idgen.allowed_shards \"$allowed\""
            ;;
        impossible)
            say "not undone, for the target may mint already. What is left to do there, if it is not done:"
            say "add $shard to idgen.allowed_shards, reload, ALTER SCHEMA $moved RENAME TO $schema"
            ;;
    esac
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Checks. Nothing is changed yet.
case $shard in *[!0-9]* | '') die "the shard is not a number: $shard" ;; esac
[ ${#moved} -le 63 ] || die "the name of the schema leaves no room for _moved"
for server in "$source" "$target"; do
    [ "$(on "$server" "SELECT pg_is_in_recovery()")" = f ] || die "a standby cannot take part: $server"
done
idgen_of() {
    on "$1" "SELECT nspname FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
             WHERE extname = 'idgen'"
}
idgen=$(idgen_of "$source")
[ -n "$idgen" ] || die "the source has no extension idgen"
[ "$(idgen_of "$target")" = "$idgen" ] || die "the target has no extension idgen in schema $idgen"
epoch='SELECT extract(epoch FROM epoch) FROM :"idgen".idgen_status'
[ "$(on "$source" "$epoch")" = "$(on "$target" "$epoch")" ] || die "the servers have different idgen.epoch"

is_there() { [ "$(on "$1" "SELECT count(*) FROM pg_namespace WHERE nspname = $2")" != 0 ]; }
is_there "$source" :\'schema\' || die "the source has no schema $schema"
for server in "$source" "$target"; do
    if is_there "$server" :\'moved\'; then die "a schema $moved is there already: $server"; fi
done
if is_there "$target" :\'schema\'; then die "the target has a schema $schema"; fi

others=$(on "$source" "
    SELECT string_agg(DISTINCT \"schema\", ', ') FROM :\"idgen\".idgen_columns
    WHERE shard = :shard AND \"schema\" <> :'schema'")
[ -z "$others" ] || die "other schemas of the source mint for shard $shard: $others"
others=$(on "$source" "
    SELECT string_agg(DISTINCT shard::text, ', ') FROM :\"idgen\".idgen_columns
    WHERE shard <> :shard AND \"schema\" = :'schema'")
[ -z "$others" ] || die "the schema mints for other shards too: $others"
others=$(on "$source" "
    SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, 0), ', ')
    FROM pg_namespace AS n
         JOIN pg_class AS t ON t.relnamespace = n.oid
         JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
         LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
         LEFT JOIN pg_class AS c
             ON c.oid = CASE d.classid WHEN 'pg_class'::regclass THEN d.objid ELSE r.ev_class END
         LEFT JOIN pg_constraint AS k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
         LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE n.nspname = :'schema' AND d.deptype IN ('n', 'a')
      AND coalesce(c.relnamespace, k.connamespace, p.pronamespace) <> n.oid")
[ -z "$others" ] || die "what is outside of the schema uses its tables: $others"

allowed=$(on "$source" "SHOW idgen.allowed_shards")
without=$(list "$source" without)
[ -n "$without" ] || die "the source has no other shard, and an empty list would mean all: add another one"
[ "$(on "$target" "$allowed_shards SELECT count(*) FROM allowed WHERE n = :shard")" = 0 ] ||
    die "the target may mint for shard $shard: it needs a list in idgen.allowed_shards without the shard"

# The new name is what keeps everybody off: no transaction uses the tables at that moment, and later ones do
# not find them. The dump takes the name along, and the last step takes it away.
say "closing schema $schema on the source"
undo=possible
for try in {1..50}; do
    # Shorter than deadlock_timeout, so that clients never wait long, nor see a deadlock. One order suits
    # clients who insert a row into a table that refers to others, for the key is checked after; the other one
    # those who insert both.
    order=$([ $((try % 2)) = 1 ] && echo DESC || echo ASC)
    if answer=$(on "$source" "
            BEGIN;
            SET LOCAL lock_timeout = '900ms';
            SELECT format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', nspname, relname)
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
            WHERE nspname = :'schema' AND relkind IN ('r', 'p') ORDER BY c.oid $order \gexec
            ALTER SCHEMA :\"schema\" RENAME TO :\"moved\";
            COMMIT;" 2>&1); then break; fi
    [ "$try" -lt 50 ] || die "$answer"
    sleep 0.2
done

# A backend reads the configuration between two commands: of those that begin from now on none mints for the
# shard. A second is for a backend that has a command already, and does not show it yet. Background workers need
# not show what they do, nor sessions with track_activities off: of these, the transactions must have ended.
say "withdrawing shard $shard from the source"
allow "$source" "$without"
sleep 1
began=$(on "$source" "SELECT clock_timestamp()")
open=$(on "$source" "SELECT array_agg(virtualtransaction) FROM pg_locks WHERE virtualxid = virtualtransaction")
deadline=$((SECONDS + COMMAND_TIMEOUT))
while true; do
    pids=$(on "$source" "
        SELECT string_agg(pid::text, ', ') FROM pg_stat_activity
        WHERE CASE WHEN state LIKE 'idle%' THEN false
                   WHEN query_start IS NOT NULL THEN query_start < '$began'
                   ELSE pid IN (SELECT pid FROM pg_locks
                                WHERE virtualxid = virtualtransaction AND virtualtransaction = ANY ('$open')) END
          AND backend_type <> 'autovacuum worker'
          AND pid NOT IN (SELECT pid FROM pg_stat_replication WHERE state <> 'startup')")
    [ -n "$pids" ] || break
    [ $SECONDS -lt $deadline ] || die "commands that began before are still running: pid $pids"
    sleep 0.1
done
# Every id that the source has minted is below its mark.
past=$(on "$source" 'SELECT coalesce(:"idgen".snowflake_max_id(mark_at), 0) FROM :"idgen".idgen_status')
js_from=$(on "$source" "
    SELECT extract(epoch FROM mark_at) + 1 FROM :\"idgen\".idgen_status
    WHERE EXISTS (SELECT FROM :\"idgen\".idgen_shard_stats WHERE shard = :shard AND layout = 'js53')
       OR EXISTS (SELECT FROM :\"idgen\".idgen_columns
                  WHERE \"schema\" = :'moved' AND expression LIKE '%snowflake_next_id_js%')")

say "copying the rows"
pg_dump -d "$source" -Fc -n "\"${moved//\"/\"\"}\"" | pg_restore -d "$target" --single-transaction

# Ids from elsewhere may be greater than the mark. A clock that is behind needs a moment.
past=$({ echo "$past"; on "$target" "
    SELECT format('SELECT max(%I) FROM %I.%I', c.\"column\", c.\"schema\", c.\"table\")
    FROM :\"idgen\".idgen_columns() AS c
         JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.\"column\"
    WHERE c.\"schema\" = :'moved' AND a.atttypid = 'bigint'::regtype \gexec"; } | sort -n | tail -n1)
say "advancing the shard on the target past $past"
for try in {1..30}; do
    if answer=$(on "$target" 'SELECT :"idgen".snowflake_advance(:shard, :past)' 2>&1); then break; fi
    [ "$try" -lt 30 ] || die "$answer"
    sleep 1
done

# Ids of snowflake_next_id_js are not advanced: they begin with the second that the target's clock shows.
if [ -n "$js_from" ]; then
    say "waiting until the target's clock has left the last second of the source"
    on "$target" "SELECT pg_sleep($js_from - extract(epoch FROM clock_timestamp()))" >/dev/null
fi

say "opening it on the target"
with=$(list "$target" with)
undo=impossible
allow "$target" "$with"
on "$target" 'ALTER SCHEMA :"moved" RENAME TO :"schema"'
undo=no
say "done. On the target, ANALYZE the tables; on the source, DROP SCHEMA $moved CASCADE when you are content."
