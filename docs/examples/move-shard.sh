#!/usr/bin/env bash
# Moves a logical shard, which is a schema of a database, to another server while clients keep working.
#
#     move-shard.sh [OPTION]... SOURCE TARGET SCHEMA SHARD
#     move-shard.sh 'host=old dbname=app' 'host=new dbname=app' insta5 5
#
# SOURCE and TARGET are connection strings for superusers, to the servers themselves and not to a pooler. psql and
# pg_dump must be on the PATH. Every user of the machine sees the arguments of a command, so leave passwords out: they
# are read from ~/.pgpass, or asked for once.
#
#     --source-standby CONNECTION    a standby of the source; one option for each
#     --target-standby CONNECTION    a standby of the target; one option for each
#     --target-owner CONNECTION      the target, as the owner of the schema, if that is not a superuser: see below
#     --set-list PROGRAM             sets idgen.allowed_shards: see below
#     --undo                         gives the shard back to the source after a move that was interrupted
#     --finish                       continues such a move
#
# No row is lost, no id is minted twice, and ids of the target are greater than those of the source. While the
# rows are copied, clients can neither read nor write the schema. Statements fail on the source with 3F000 or 42P01
# (the schema or table does not exist) or 55000 (the shard is not allowed), and on the target in the same way until
# the move is done. A client that gets one of these errors should try again, on the target.
#
# Everything that can be checked is checked before the schema is closed. If something fails after that, the move is
# undone, unless the target may already mint. The name of the schema on the source says how far a move has come:
#
#     SCHEMA            it has not begun, or was undone
#     SCHEMA_moving     the source is closed, and the target does not mint: --undo or --finish
#     SCHEMA_moved      the target may mint: --finish. After the move, these are the old rows, for you to drop
#
# idgen.allowed_shards is set on each server by itself: standbys do not replay it. So the lists of the standbys are
# changed too; otherwise a promoted standby of the source would mint what the target mints. The lists are set by ALTER
# SYSTEM. If something else manages the configuration, such as Patroni or a Kubernetes operator, give a PROGRAM that
# changes it there. It is called with two arguments, "source" or "target" and the list, and must set the list on the
# standbys too. The move continues once every server shows the list.
#
# A restore runs what others have written: a CHECK constraint, for example, can call a function of its owner. So the
# schema is restored as a superuser only if it and all that it uses, directly or not, belong to superusers, and only
# superusers can create objects in the schemas of the target that it refers to. For any other schema, --target-owner
# connects as a role that can create schemas there and may own what is in the schema, and what is in the schema runs
# with the rights of that role.
#
# Requirements: the same idgen.epoch on both servers; the extension in schemas of the same name, which belong to
# superusers, who alone can create objects there; a list on the target without the shard (an empty list means every
# shard, and only one server may mint for this one); nothing outside the schema that uses objects in it; one move at a
# time on either server.
#
# Not moved: large objects, and whatever is not part of the schema, such as publications. While the rows are copied, the
# schema has another name on the target too: a constraint or an index fails there if it calls a function whose body is a
# string that names the schema.
set -euo pipefail
shopt -s inherit_errexit
# A role or a database may have other values.
for setting in search_path=pg_catalog client_min_messages=warning synchronous_commit=on datestyle=ISO timezone=UTC \
    track_activities=on idle_session_timeout=0 idle_in_transaction_session_timeout=0 statement_timeout=0 \
    lock_timeout=0 default_transaction_read_only=off standard_conforming_strings=on; do
    PGOPTIONS="${PGOPTIONS-} -c $setting"
done
export PGOPTIONS PGCONNECT_TIMEOUT=10
# PostgreSQL 16 and earlier do not have this setting. pg_dump resets it itself.
no_timeout="SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout' \\g /dev/null"$'\n'
CLOSE_TIMEOUT=${CLOSE_TIMEOUT:-60}        # s, for the transactions that use the schema to leave a gap
COMMAND_TIMEOUT=${COMMAND_TIMEOUT:-30}    # s, for the commands that began before the shard was withdrawn

# Names that others chose could control the terminal, or forge a line.
say() { printf '%s  %s\n' "$(date -u +%T.%3N)" "${*//[[:cntrl:]]/ }"; }
die() { printf 'error: %s\n' "${*//[[:cntrl:]]/ }" >&2; exit 1; }
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }

declare -A connection password
apart=()
source=('the source') target=('the target') resume='' set_list=''
while [ $# -gt 4 ] || [[ "${1-}" == --* ]]; do
    case $1 in
        --undo | --finish) resume=${1#--} ;;
        --source-standby) source+=("standby ${#source[@]} of the source") connection[${source[-1]}]=${2-} && shift ;;
        --target-standby) target+=("standby ${#target[@]} of the target") connection[${target[-1]}]=${2-} && shift ;;
        --target-owner) connection['the owner']=${2-} && shift ;;
        --set-list) set_list=${2-} && shift ;;
        *) usage ;;
    esac
    shift || usage
done
[ $# = 4 ] || usage
connection['the source']=$1 connection['the target']=$2
schema=$3 shard=$4 moving=$3_moving moved=$3_moved
case $shard in *[!0-9]* | '') die "the shard is not a number: $shard" ;; esac
[ ${#shard} -le 9 ] || die "the shard is out of range: $shard"
shard=$((10#$shard))

# db SERVER [ARGUMENT]...: psql. The environment of a process is hidden from other users, its arguments are not.
db() {
    local options=$PGOPTIONS
    # Only a superuser may set this.
    [ "$1" != 'the owner' ] || options=${options/-c track_activities=on/}
    PGOPTIONS=$options PGPASSWORD=${password[$1]-${PGPASSWORD-}} \
        "${apart[@]}" psql -X -q -w -d "${connection[$1]}" "${@:2}"
}

# on SERVER SQL: prints the result of the SQL, run in a session of its own.
on() {
    local code=0
    db "$1" -At -v ON_ERROR_STOP=1 -v schema="$schema" -v moving="$moving" -v moved="$moved" -v shard="$shard" \
        -v idgen="${idgen-}" -v past="${past-}" -v database="${database-}" <<<"$no_timeout$2" || code=$?
    # psql exits with 2 if the connection could not be made, or was lost.
    [ "$code" != 2 ] || printf 'error: %s cannot be reached\n' "$1" >&2
    return "$code"
}

quoted() { printf '"%s"' "${1//\"/\"\"}"; }

# The statements to run by hand.
rename_by_hand() { printf 'ALTER SCHEMA %s RENAME TO %s;' "$(quoted "$1")" "$(quoted "$2")"; }
list_by_hand() {
    if [ -n "$set_list" ]; then
        printf "set idgen.allowed_shards = '%s' where its configuration is kept" "$1"
    else
        printf "ALTER SYSTEM SET idgen.allowed_shards = '%s'; SELECT pg_reload_conf();" "$1"
    fi
}

# The shards that a server may mint for: the rows n of "allowed".
allowed_shards="WITH allowed AS (
        SELECT n
        FROM string_to_table(
                 coalesce(nullif(trim(current_setting('idgen.allowed_shards')), ''), '0-8191'), ',') AS entry,
             generate_series(split_part(entry, '-', 1)::integer, split_part(entry, '-', -1)::integer) AS n)"

# list SERVER with|without: prints its idgen.allowed_shards with the shard added, or removed.
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

# Without an answer it is true, which is the safe side.
is_allowed="$allowed_shards SELECT coalesce(bool_or(n = :shard), false) FROM allowed"
may_mint() { [ "$(on "$1" "$is_allowed")" != f ]; }

# state_of SERVER: prints which names of the schema exist there.
state_of() {
    on "$1" "SELECT coalesce(string_agg(CASE nspname WHEN :'schema' THEN ' schema' WHEN :'moving' THEN ' moving'
                                                     ELSE ' moved' END, '' ORDER BY length(nspname), nspname), '')
             FROM pg_namespace WHERE nspname IN (:'schema', :'moving', :'moved')"
}

# allow SERVER LIST: changes the setting, and waits until the postmaster has told every backend.
allow() {
    local try tries=600    # another program may take a while to reach the servers
    if [ -z "$set_list" ]; then
        tries=100
        on "$1" "ALTER SYSTEM SET idgen.allowed_shards = '$2'" && on "$1" "SELECT pg_reload_conf()" >/dev/null || return
    fi
    for ((try = 0; try < tries; try++)); do
        [ "$(on "$1" "SHOW idgen.allowed_shards")" != "$2" ] || return 0
        sleep 0.1
    done
    echo "error: idgen.allowed_shards did not become \"$2\" on $1" >&2
    return 1
}

# allow_all source|target LIST: changes the setting on a server and its standbys.
allow_all() {
    local server failed=0
    local -n servers=$1
    [ -z "$set_list" ] || "$set_list" "$1" "$2" || return
    for server in "${servers[@]}"; do
        allow "$server" "$2" || { failed=1; say "still to be done on $server: $(list_by_hand "$2")"; }
    done
    return "$failed"
}

# Anybody may give a session the name of ours. Ours are those of superusers, except a restore by the owner.
by_superuser='usesysid IN (SELECT oid FROM pg_roles WHERE rolsuper)'

# end_others SERVER: ends sessions of an earlier run, such as a restore that could still commit. It does not wait for
# sessions of ordinary roles that begin later: somebody could begin one after the other.
end_others() {
    local pids='' try began
    began=$(on "$1" "SELECT clock_timestamp()") || return
    for try in {1..300}; do
        pids=$(on "$1" "
            SELECT string_agg(pid::text, ', ') FROM pg_stat_activity
            WHERE application_name = '$PGAPPNAME' AND ($by_superuser OR backend_start < '$began')
              AND pid NOT IN (pg_backend_pid(), $([ "$1" = 'the source' ] && echo "$lock_pid" || echo "$hold_pid"))") ||
            return
        [ -n "$pids" ] || return 0
        [ "$try" != 1 ] || say "ending sessions that are still at work for this move on $1: pid $pids"
        on "$1" "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN ($pids)" >/dev/null || return
        sleep 0.1
    done
    echo "error: these sessions on $1 did not end: pid $pids" >&2
    return 1
}

# open_lock: begins the session that holds the lock of the schema. It ends with this program, however that ends. It has
# a session of the operating system of its own, so that Ctrl-C does not end it: the undo needs it.
own=() lock_pid='' answer=''
! command -v setsid >/dev/null || own=(setsid)
open_lock() {
    local to=${lock[1]-} pid=${lock_PID-}
    # A coprocess that is gone must be waited for, or bash would forget the new one with it. If a firewall has cut it
    # off, its session on the server still holds the lock.
    [ -z "$to" ] || eval "exec $to>&-"
    [ -z "$pid" ] || wait "$pid" || true
    [ -z "$lock_pid" ] || on 'the source' "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                                           WHERE pid = $lock_pid AND application_name = '$PGAPPNAME'" >/dev/null || true
    coproc lock {
        PGPASSWORD=${password['the source']-${PGPASSWORD-}} exec "${own[@]}" psql -X -q -w -At \
            -d "${connection['the source']}" -v schema="$schema" -v moving="$moving" -v moved="$moved"
    }
    in_lock "${no_timeout}SELECT pg_backend_pid();" || return
    [[ "$answer" =~ ^[0-9]+$ ]] || return
    lock_pid=$answer
    in_lock "SET lock_timeout = '5s'; SELECT pg_advisory_lock(hashtext('move-shard'), hashtext(:'schema'));"
}

# in_lock SQL: runs it in the session that holds the lock, so that a run that has lost the lock changes no name. Sets
# answer to the last line of the output. A mark of its own ends each output, because an earlier call may have been
# interrupted. The array of the coprocess disappears with the session.
in_lock() {
    local line='' part='' sqlstate='' code who mark="done $RANDOM$RANDOM" from=${lock[0]-} to=${lock[1]-}
    answer=''
    trap '' PIPE
    [ -n "$from" ] && [ -n "$to" ] || return
    { cat >&"$to"; } 2>/dev/null <<<"$1"$'\n\\echo :SQLSTATE\n\\echo '"$mark" || return
    while true; do
        code=0
        IFS= read -r -t 10 part 2>/dev/null <&"$from" || code=$?
        line+=$part    # of which only a part may have come in time
        if [ "$code" -gt 128 ]; then
            who=$(on 'the source' "SELECT array_to_string(pg_blocking_pids(${lock_pid:-0}), ', ')" 2>/dev/null) || true
            say "waiting for the session that holds the lock on the source${who:+. It waits for pid $who}"
            continue
        fi
        [ "$code" = 0 ] || return
        [ "$line" != "$mark" ] || break
        answer=$sqlstate sqlstate=$line line=''
    done
    [ "$sqlstate" = 00000 ]
}

# While a schema moves, the first line of its comment on the source names the shard; its own comment follows.
comment_line="split_part(obj_description(oid, 'pg_namespace'), E'\\n', 1)"
comment_of="nullif(substr(obj_description(oid, 'pg_namespace'), length($comment_line) + 2), '')"

# The source comes first, because clients wait for it. Its list comes after its name, which only the holder of the lock
# has changed. Nothing may interrupt this: psql would receive a second Ctrl-C even though it is ignored here.
undo() {
    local server left=0
    trap '' INT TERM HUP PIPE
    ! command -v setsid >/dev/null || apart=(setsid -w)
    # A COMMIT that waits for standbys could still happen.
    if { in_lock 'SET client_min_messages = error; ROLLBACK;' || open_lock; } && end_others 'the source' &&
        [ "$(state_of 'the source')" != ' schema' ]; then
        in_lock "BEGIN;
            SELECT format('COMMENT ON SCHEMA %I IS %L', nspname, $comment_of) FROM pg_namespace
            WHERE nspname = :'moving' \\gexec
            ALTER SCHEMA :\"moving\" RENAME TO :\"schema\";
            COMMIT;" || true
    fi
    # Somebody else may have given a new schema the name in the meantime.
    case "$(state_of 'the source')" in
        ' schema') ;;
        *' moved'*)
            say "NOT undone: another run has continued, and the target may mint. Run the same command with --finish"
            return 1
            ;;
        ' schema moving')
            say "NOT undone: the source has a new schema $schema beside $moving. Drop or rename it, and run with --undo"
            return 1
            ;;
        *)
            say "NOT undone. Still to be done, if the source has $moving: $(rename_by_hand "$moving" "$schema")"
            say "and then on the source and each of its standbys: $(list_by_hand "$allowed")"
            return 1
            ;;
    esac
    if [ "$withdrawn" = yes ]; then
        if [ -n "$set_list" ] && [ "$(on 'the source' "SHOW idgen.allowed_shards")" != "$allowed" ]; then
            "$set_list" source "$allowed" || true
        fi
        for server in "${source[@]}"; do
            allow "$server" "$allowed" || {
                left=1
                say "NOT undone. Still to be done on $server: $(list_by_hand "$allowed")"
            }
        done
    fi
    [ "$left" = 1 ] ||
        say "undone: the source has the shard, in schema $schema, and idgen.allowed_shards is \"$allowed\" again"
    drop_copy
    return "$left"
}

# A copy of this source's rows says so in its comment; no other schema is dropped.
mark_of() { on "$1" "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :'moving'"; }
drop_copy() {
    end_others 'the target' &&
        on 'the target' "SET client_min_messages = warning;
            SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
            WHERE nspname = :'moving' AND obj_description(oid, 'pg_namespace') = '$PGAPPNAME' \\gexec
            SELECT format('%I is left on the target: it is not a copy from this source', nspname)
            FROM pg_namespace WHERE nspname = :'moving'" ||
        say "still to be done on the target, if it is a copy: DROP SCHEMA IF EXISTS $(quoted "$moving") CASCADE;"
}

state=unchanged withdrawn=no copy='' with=''
finish() {
    local code=$?
    # An undo runs to its end, even if nobody reads its output any more.
    set +e +m
    trap - EXIT
    trap '' INT TERM HUP PIPE
    [ -z "$copy" ] || kill -- "-$copy" 2>/dev/null || true
    case $state in
        closed)
            say "undoing what was done"
            # Another move may have changed the list since. The old text would lose its change.
            now=$(on 'the source' "SHOW idgen.allowed_shards") && [ "$withdrawn" = yes ] && [ "$now" != "$without" ] &&
                now=$(list 'the source' with) && [ -n "$now" ] && allowed=$now
            undo
            ;;
        resumed) say "the move was interrupted again: run the same command with --finish, or with --undo" ;;
        opened)
            say "NOT undone, because the target may already mint. Run the same command with --finish"
            [ -z "$with" ] || say "By hand, on the target and its standbys: $(list_by_hand "$with") and then on the" \
                "target: $(rename_by_hand "$moving" "$schema")"
            ;;
    esac
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP PIPE

# Values are read by COPY of ordinary tables. It runs no view, and plans no query, which would evaluate constant
# expressions of indexes with the rights of whoever reads.
leaves="LATERAL (SELECT t.oid AS leaf WHERE t.relkind = 'r' UNION
                 SELECT relid FROM pg_partition_tree(t.oid) JOIN pg_class AS c ON c.oid = relid WHERE c.relkind = 'r')
            AS leaves"

# columns_of SERVER HEX: prints the rows of a table's columns, given in JSON.
columns_of() {
    PGCLIENTENCODING=UTF8 on "$1" "
        SELECT format('COPY %s (%s) TO STDOUT', leaf::regclass,
                      (SELECT string_agg(quote_ident(name), ', ' ORDER BY n)
                       FROM json_array_elements_text(wanted->'columns') WITH ORDINALITY AS c (name, n)))
        FROM (SELECT convert_from(decode('$2', 'hex'), 'UTF8')::json AS wanted) AS w
             JOIN pg_namespace AS n ON nspname = wanted->>'schema'
             JOIN pg_class AS t ON relnamespace = n.oid AND relname = wanted->>'table', $leaves
        \\gexec"
}

# used NAME: begins a query with the objects that the schema in that variable of psql consists of, or uses.
used() {
    cat <<END
WITH RECURSIVE this AS (SELECT oid AS schema FROM pg_namespace WHERE nspname = :'$1'),
used (classid, objid) AS (
    SELECT 'pg_namespace'::regclass::oid, schema FROM this
    UNION
    SELECT next.*
    FROM this, used, LATERAL (
        SELECT refclassid, refobjid FROM pg_depend AS d WHERE d.classid = used.classid AND d.objid = used.objid
        UNION ALL
        SELECT d.classid, d.objid FROM pg_depend AS d
        WHERE d.refclassid = used.classid AND d.refobjid = used.objid
          AND (d.deptype IN ('a', 'i', 'P', 'S')
               OR used.classid = 'pg_namespace'::regclass AND used.objid = this.schema)) AS next (classid, objid)
    WHERE next.classid <> 'pg_extension'::regclass)
END
}

# look_at NAME: begins a transaction in the session that holds the lock, checks what the schema in that variable uses,
# and sets snapshot. The dump reads this very snapshot, so nobody can add something in between.
look_at() {
    in_lock "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot();" || die "the lock of the move is gone"
    snapshot=$answer
    [ "$restorer" = 'the target' ] || return 0
    in_lock "$(used "$1")
        SELECT string_agg(what, ', ')
        FROM (SELECT DISTINCT translate(format('%s of %s', pg_describe_object(classid, objid, 0), rolname),
                                        E'\\n\\r\\t', '   ')
              FROM this, used JOIN pg_shdepend AS s USING (classid, objid) JOIN pg_roles AS r ON r.oid = s.refobjid
              WHERE s.deptype = 'o' AND NOT rolsuper
                AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND (classid <> 'pg_namespace'::regclass OR objid = this.schema)
              LIMIT 5) AS found (what);" || die "cannot find out what the schema uses"
    [ -z "$answer" ] || die "a superuser must not restore what others may have written: $answer. If the schema" \
        "belongs to one of them, give --target-owner. Otherwise, give all that it uses to superusers"
}
# dump NAME [OPTION]...
dump() {
    PGPASSWORD=${password['the source']-${PGPASSWORD-}} exec pg_dump -w -d "${connection['the source']}" \
        --snapshot="$snapshot" -n "$(quoted "$1")" "${@:2}"
}

# --- Checks while clients keep working. Nothing is changed.

# An undo needs only the source.
needed=("${source[@]}" "${target[@]}")
[ "$resume" != undo ] || needed=('the source')
for server in "${source[@]}" "${target[@]}" ${connection['the owner']+'the owner'}; do
    said=$(LC_ALL=C on "$server" "SELECT" 2>&1) && continue
    if [[ "$said" == *'no password supplied'* ]]; then
        # psql would ask for each session.
        read -rsp "password for $server: " "password[$server]" 2>/dev/tty </dev/tty || exit
        echo >/dev/tty
        said=$(on "$server" "SELECT" 2>&1) && continue
    fi
    printf '%s\n' "$said" >&2
    [ "$resume" = undo ] && [[ " ${needed[*]} " != *"$server"* ]] || exit 1
done
for server in 'the source' 'the target'; do
    [[ " ${needed[*]} " != *"$server"* ]] || [ "$(on "$server" "SELECT pg_is_in_recovery()")" = f ] ||
        die "$server is a standby, which cannot take part"
done
[ "$(on 'the source' "SELECT octet_length(:'moving')")" -le 63 ] ||
    die "the name of the schema is too long for _moving to be appended"

# Older ones let a name with a line break, or a hostile server, run commands of psql.
[[ "$(pg_dump --help)" == *--restrict-key* ]] ||
    die "pg_dump must be of 13.22, 14.19, 15.14, 16.10, 17.6 or later: $(pg_dump --version)"

# One run at a time. A session on the target stays open as long as the one with the lock. All sessions of this program
# have the same application_name.
system() { on "$1" "SELECT system_identifier FROM pg_control_system()"; }
PGAPPNAME="move-shard $shard of $(system 'the source')/$(on 'the source' "SELECT oid FROM pg_database
                                                                        WHERE datname = current_database()")"
export PGAPPNAME
for server in "${needed[@]}"; do
    [ "$(on "$server" "SELECT current_setting('application_name') || current_setting('search_path')")" = \
        "${PGAPPNAME}pg_catalog" ] || die "the connection string of $server must not set options or application_name"
done
open_lock || die "another run is at work on $schema, or its lock cannot be taken. On the source, pid $(
    on 'the source' "SELECT coalesce(string_agg(pid::text, ', '), 'none') FROM pg_locks
                     WHERE locktype = 'advisory' AND granted AND objsubid = 2
                       AND classid::bigint = hashtext('move-shard')::bigint & 4294967295")"
in_lock 'SET lock_timeout = 0;'
restorer='the target' hold_pid=0
if [[ " ${needed[*]} " == *'the target'* ]]; then
    exec {hold}> >(db 'the target' >/dev/null)
    for try in {1..100}; do
        hold_pid=$(on 'the target' "SELECT coalesce(max(pid), 0) FROM pg_stat_activity
            WHERE application_name = '$PGAPPNAME' AND $by_superuser
              AND pid <> pg_backend_pid() AND query = '' AND state = 'idle'")
        [ "$hold_pid" = 0 ] || break
        sleep 0.1
    done
    [ "$hold_pid" != 0 ] || die "cannot keep a session open on the target"
fi
if [ -n "${connection['the owner']-}" ] && [ "$resume" != undo ]; then
    restorer='the owner'
    where="SELECT current_setting('application_name'), current_setting('search_path'), current_database(),
                  pg_postmaster_start_time()"
    [ "$(on "$restorer" "$where")" = "$(on 'the target' "$where")" ] ||
        die "--target-owner must connect to the same database as the target, and not set options or application_name"
    [ "$(on "$restorer" "SHOW is_superuser")" = off ] || die "--target-owner must not connect as a superuser"
fi
# Two moves would read the same list, and each would write it without the change of the other.
for server in "${needed[@]}"; do
    others=$(on "$server" "
        SELECT string_agg(DISTINCT format('%s, in %s', application_name, datname), '; ') FROM pg_stat_activity
        WHERE application_name LIKE 'move-shard %' AND application_name <> '$PGAPPNAME' AND $by_superuser")
    [ -z "$others" ] || die "another move is at work on $server: $others"
done

# idgen_of SERVER: prints the schema of the extension, unless others may create objects in it or rename it, or drop the
# extension: they could put a view of their own in the place of one that is read below.
idgen_of() {
    on "$1" "SELECT nspname FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
             WHERE extname = 'idgen' AND NOT EXISTS (
                 SELECT FROM pg_roles AS r WHERE NOT rolsuper AND r.oid <> 'pg_database_owner'::regrole
                     AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
                          OR pg_has_role(r.oid, extowner, 'MEMBER')))"
}
idgen=$(idgen_of 'the source')
[ -n "$idgen" ] || die "the source has no extension idgen, or one that others than superusers own or can create objects beside"
others=$(on 'the source' "
    SELECT string_agg(DISTINCT shard::text, ', ') FROM :\"idgen\".idgen_columns
    WHERE shard <> :shard AND \"schema\" IN (:'schema', :'moving', :'moved')")
[ -z "$others" ] || die "the schema mints for other shards too: $others"
[[ "$(mark_of 'the source')" != 'move-shard '* ]] ||
    die "$moving on the source is a copy: are source and target the right way round?"
answer=$(on 'the source' "SELECT $comment_line FROM pg_namespace WHERE nspname IN (:'moving', :'moved')
                          AND obj_description(oid, 'pg_namespace') LIKE 'moves with shard %'")
[ -z "$answer" ] || [ "$answer" = "moves with shard $shard" ] || die "a different move was interrupted: it $answer"

# WAL senders to standbys. pg_receivewal replays nothing, whatever its application_name.
senders="
    SELECT format('%s at %s', application_name, coalesce(host(client_addr), 'the same machine'))
    FROM pg_stat_replication
    WHERE state <> 'backup' AND NOT (state = 'streaming' AND replay_lsn IS NULL)
      AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active)"

allowed=$(on 'the source' "SHOW idgen.allowed_shards")
without=$(list 'the source' without)
if [ "$resume" = undo ]; then
    at_source=$(state_of 'the source')
    if [[ "$at_source" == *' moving'* ]]; then
        # The source has SCHEMA_moved before the shard is added to the target's list, so a target that does not answer
        # cannot mint yet. If it can, somebody has set its list by hand.
        [ "$(on 'the target' "$is_allowed" 2>/dev/null || true)" != t ] ||
            die "the target may mint for shard $shard: take it out of its list first, if nobody has minted there"
        allowed=$(list 'the source' with) withdrawn=yes
        named=$(on 'the source' "$senders" | grep -c . || true)
        undo || exit
        [ "$named" -lt ${#source[@]} ] ||
            die "the source has standbys that were not named. Still to be done there: $(list_by_hand "$allowed")"
    elif [[ "$at_source" == *' schema'* ]]; then
        drop_copy
        may_mint 'the source' ||
            die "the source has the schema. It may not mint for shard $shard. If no other server does:" \
                "$(list_by_hand "$(list 'the source' with)")"
        left=''
        for server in "${source[@]:1}"; do may_mint "$server" || left+=${left:+, }$server; done
        [ -z "$left" ] || allow_all source "$allowed" || die "not undone on all of: $left"
        say "the source has nothing ${left:+more }to undo"
    elif [[ "$at_source" == *' moved'* ]]; then
        die "the target may mint already: --finish is the only way"
    else
        die "the source has no schema $schema. Are source and target the right way round?"
    fi
    exit 0
fi

[ "$(idgen_of 'the target')" = "$idgen" ] || die "the target does not have the extension idgen in schema" \
    "$idgen, or others than superusers own it or can create objects beside it"
epoch='SELECT extract(epoch FROM epoch) FROM :"idgen".idgen_status'
source_epoch=$(on 'the source' "$epoch")
target_epoch=$(on 'the target' "$epoch")
[ "$source_epoch" = "$target_epoch" ] || die "the servers have different values of idgen.epoch"

# How far an earlier run got.
at_source=$(state_of 'the source')
at_target=$(state_of 'the target')
case "$at_source/$at_target/$resume" in
    ' schema//') ;;
    ' moving//finish' | ' moving/ moving/finish') ;;
    ' moved/ moving/finish' | ' moved/ schema/finish') ;;
    ' schema/ moving/'*)
        die "the target has $moving, a copy left by a move that was undone. Drop it with --undo, or there:" \
            "DROP SCHEMA $(quoted "$moving") CASCADE;" ;;
    ' moving//' | ' moving/ moving/')
        die "an earlier move was interrupted. The source has $moving, which nobody can use. Run the same command with" \
            "--undo to give it back to the source, or with --finish. To undo it by hand, on the source and each of its" \
            "standbys: $(list_by_hand "$(list 'the source' with)") and then on the source:" \
            "$(rename_by_hand "$moving" "$schema")" ;;
    ' moved/ moving/')
        die "an earlier move was interrupted when the target might already mint. Run the same command with --finish. By" \
            "hand, on the target and each of its standbys: $(list_by_hand "$(list 'the target' with)") and then on the" \
            "target: $(rename_by_hand "$moving" "$schema") COMMENT ON SCHEMA $(quoted "$schema") IS NULL;" ;;
    ' moved/ schema moving/'*)
        die "the target has a new schema $schema beside $moving, which has the rows. Drop or rename it, and run the same" \
            "command with --finish" ;;
    ' moved/ schema/') die "the schema has moved: the target has it. --finish sets the lists once more" ;;
    ' schema/'*'/finish') die "there is nothing to finish: the source has the schema" ;;
    ' moved//'*)
        die "the source has $moved, and the target has none of it. If the target has lost it, and no server mints for" \
            "shard $shard, give it back, on the source: $(rename_by_hand "$moved" "$schema") and on the source and each" \
            "of its standbys: $(list_by_hand "$(list 'the source' with)")" ;;
    ' schema moved'/*)
        die "the source also has $moved, from an earlier move. Once you no longer need it:" \
            "DROP SCHEMA $(quoted "$moved") CASCADE;" ;;
    ' schema/ moved'*)
        die "the target has $moved, from an earlier move. Once you no longer need it:" \
            "DROP SCHEMA $(quoted "$moved") CASCADE;" ;;
    '/ '*) die "the source has no schema $schema, but the target has. Are source and target the right way round?" ;;
    *' m'*/* | */*' m'*) die "there is more than a move leaves behind:$at_source on the source,$at_target on the target" ;;
    */*' schema'*) die "the target already has a schema $schema" ;;
    *) die "the source has no schema $schema" ;;
esac

# Every standby must be named, and have the list of its primary, because it mints by its own list once it is promoted.
# After a move that was interrupted the lists may differ; they are set again.
away=()
check_standbys() {
    local server found='' receivers=0 identity identities='' answer slot allowed_here allowed_there
    local -n servers=$1
    answer=$(system "${servers[0]}")
    for server in "${servers[@]:1}"; do
        identity=$(on "$server" "SELECT pg_is_in_recovery()")$(system "$server")
        [ "$identity" = "t$answer" ] || die "what was given as $server is none"
        receivers=$((receivers + $(on "$server" "SELECT count(*) FROM pg_stat_wal_receiver")))
    done
    allowed_here=$(list "${servers[0]}" without)$(on "${servers[0]}" "$is_allowed")
    for server in "${servers[@]}"; do
        identity=[$(on "$server" "SELECT pg_postmaster_start_time(), inet_server_addr(), setting
                                  FROM pg_settings WHERE name = 'data_directory'")]
        [[ "$identities" != *"$identity"* ]] || die "$server was given twice"
        identities+=$identity
        answer=$(on "$server" "$senders")
        found+=${answer:+$answer$'\n'}
        answer=$(on "$server" "SELECT slot_name FROM pg_replication_slots
                               WHERE slot_type = 'physical' AND NOT active AND NOT temporary")
        for slot in $answer; do away+=("the standby of slot $slot of $server"); done
        [ -z "$resume" ] || continue
        allowed_there=$(list "$server" without)$(on "$server" "$is_allowed")
        [ "$allowed_there" = "$allowed_here" ] ||
            die "idgen.allowed_shards of $server differs from that of ${servers[0]}, which it may have to replace. There:" \
                "$(list_by_hand "$(on "${servers[0]}" "SHOW idgen.allowed_shards")")"
    done
    [ "$(grep -c . <<<"$found" || true)" -le "$receivers" ] ||
        die "${servers[0]} has standbys that were not named. Name each with --$1-standby:" "$(paste -sd, <<<"${found%$'\n'}")"
}
check_standbys source
check_standbys target
for server in "${source[@]}" "${target[@]}"; do
    [ -z "$set_list" ] || break
    [ "$(on "$server" "SELECT count(*) FROM pg_stat_activity
                       WHERE application_name LIKE 'Patroni%' AND $by_superuser")" = 0 ] ||
        die "$server is run by Patroni, whose configuration ALTER SYSTEM would permanently override: see --set-list"
    [ "$(on "$server" "SELECT source FROM pg_settings WHERE name = 'idgen.allowed_shards'")" != 'command line' ] ||
        die "idgen.allowed_shards of $server is set on its command line, where it cannot be changed"
done

# From SCHEMA_moved on, the target may mint. Before that, neither the target nor its standbys may.
if [[ "$at_target" == *moving* ]]; then
    answer=$(mark_of 'the target')
    [ "$answer" = "$PGAPPNAME" ] || die "$moving on the target is not a copy from this source"
fi
if [ "$at_source" != ' moved' ]; then
    ! may_mint 'the target' ||
        {
            answer=$(list 'the target' without)
            die "the target may mint for shard $shard. It needs a list in idgen.allowed_shards without the shard:" \
                "$([ -n "$answer" ] && list_by_hand "$answer" || echo "another shard, for an empty list means all")"
        }
fi
if [ -z "$resume" ]; then
    may_mint 'the source' ||
        die "the source may not mint for shard $shard, so there is nothing to move. If it should:" \
            "$(list_by_hand "$(list 'the source' with)")"
fi
[ -n "$without" ] || die "the source has no other shard, and an empty list would mean all shards: add another shard"

# Only commands that can mint for the shard count: those in databases with the extension, or that cannot be checked.
databases=''
# A name may contain anything, so psql gets it in a variable, as a connection string whose quotes and backslashes are
# escaped.
answer=$(on 'the source' "
    SELECT oid, encode(convert_to(format('dbname=''%s''', regexp_replace(datname, '([''\\\\])', '\\\\\\1', 'g')),
                                  getdatabaseencoding()), 'hex')
    FROM pg_database WHERE datallowconn")
while IFS='|' read -r oid database; do
    printf -v database '%b' "$(sed 's/../\\x&/g' <<<"$database")"
    there=$(on 'the source' "\\connect -reuse-previous=on :database
        SELECT count(*) FROM pg_extension WHERE extname = 'idgen'" 2>/dev/null || echo unknown)
    [ "$there" = 0 ] || databases+="${databases:+, }$oid"
done <<<"$answer"

# wait_for_commands WHY: waits until the commands running now have ended. A backend reads the configuration between two
# commands. Background workers, and sessions with track_activities off, may not show what they do: their transactions
# must have ended.
wait_for_commands() {
    local began open pids deadline=$((SECONDS + COMMAND_TIMEOUT)) said=$SECONDS
    began=$(on 'the source' "SELECT extract(epoch FROM clock_timestamp())")
    open=$(on 'the source' "SELECT array_agg(virtualtransaction) FROM pg_locks WHERE virtualxid = virtualtransaction")
    while true; do
        pids=$(on 'the source' "
            SELECT string_agg(format('pid %s (%s in %s, since %s)', pid, coalesce(nullif(application_name, ''),
                                     backend_type), datname, coalesce(query_start, backend_start)), ', ')
            FROM pg_stat_activity
            WHERE CASE WHEN state LIKE 'idle%' THEN false
                       WHEN query_start IS NOT NULL THEN extract(epoch FROM query_start) < $began
                       ELSE pid IN (SELECT pid FROM pg_locks
                                    WHERE virtualxid = virtualtransaction AND virtualtransaction = ANY ('$open')) END
              AND datid IN ($databases) AND backend_type <> 'autovacuum worker'
              AND pid NOT IN (SELECT pid FROM pg_stat_replication WHERE state <> 'startup')")
        [ -n "$pids" ] || return 0
        [ $SECONDS -lt $deadline ] || die "commands that began before $1 are still running: $pids"
        if [ $SECONDS -ge $((said + 5)) ]; then
            say "waiting for $pids"
            said=$SECONDS
        fi
        sleep 0.1
    done
}

others=$(on 'the source' "
    SELECT string_agg(DISTINCT \"schema\", ', ') FROM :\"idgen\".idgen_columns
    WHERE shard = :shard AND \"schema\" NOT IN (:'schema', :'moving', :'moved')")
[ -z "$others" ] || die "other schemas of the source mint for shard $shard: $others"
# The members of the schema depend on it. What are the objects part of that depend on the members?
others=$(on 'the source' "
    SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, 0), ', ')
    FROM pg_namespace AS n
         JOIN pg_depend AS m ON m.refclassid = 'pg_namespace'::regclass AND m.refobjid = n.oid
         JOIN pg_depend AS d ON d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype IN ('n', 'a')
         LEFT JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
         LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
         LEFT JOIN pg_trigger AS g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
         LEFT JOIN pg_policy AS y ON d.classid = 'pg_policy'::regclass AND y.oid = d.objid
         LEFT JOIN pg_class AS c
             ON c.oid = coalesce(f.adrelid, r.ev_class, g.tgrelid, y.polrelid,
                                 CASE d.classid WHEN 'pg_class'::regclass THEN d.objid END)
         LEFT JOIN pg_constraint AS k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
         LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
         LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
    WHERE n.nspname = :'schema'
      AND coalesce(c.relnamespace, k.connamespace, p.pronamespace, t.typnamespace) NOT IN (n.oid, 'pg_toast'::regnamespace)")
[ -z "$others" ] || die "objects outside the schema use objects in it: $others"
# Through a parent, their rows would be found whatever the name of the schema.
others=$(on 'the source' "
    SELECT string_agg(DISTINCT format('%s of %s', i.inhrelid::regclass, i.inhparent::regclass), ', ')
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_class AS p ON p.oid = i.inhparent
         JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :'schema' AND p.relnamespace <> n.oid AND c.relkind IN ('r', 'p', 'f')")
[ -z "$others" ] || die "the schema has partitions or children of tables outside it: $others"
others=$(on 'the source' "
    SELECT string_agg(DISTINCT format('%s on %s', conname, conrelid::regclass), ', ')
    FROM pg_constraint AS k JOIN pg_class AS r ON r.oid = confrelid JOIN pg_namespace AS n ON n.oid = connamespace
    WHERE n.nspname = :'schema' AND contype = 'f' AND r.relnamespace <> n.oid
      AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))")
[ -z "$others" ] || die "foreign keys would keep changing rows from outside the schema. Set them to NO ACTION," \
        "at least for the move: $others"
others=$(on 'the source' "
    SELECT string_agg(DISTINCT pg_describe_object(m.classid, m.objid, 0), ', ')
    FROM pg_namespace AS n
         JOIN pg_depend AS m ON m.refclassid = 'pg_namespace'::regclass AND m.refobjid = n.oid
         JOIN pg_depend AS e ON e.classid = m.classid AND e.objid = m.objid AND e.deptype = 'e'
    WHERE n.nspname = :'schema'")
[ -z "$others" ] || die "the schema has members of an extension, which would not be moved: $others"
answer=$(on 'the source' "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :'schema'")
[[ "$answer" != 'move-shard '* ]] ||
    die "the schema has the comment of a copy: COMMENT ON SCHEMA $(quoted "$schema") IS NULL;"
# An apply worker does not look up the name again either.
others=$(on 'the source' "
    SELECT string_agg(DISTINCT quote_ident(subname), ', ')
    FROM pg_subscription AS s JOIN pg_subscription_rel ON srsubid = s.oid
         JOIN pg_class AS c ON c.oid = srrelid JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE nspname = :'schema' AND subenabled")
[ -z "$others" ] || die "subscriptions write into the schema: ALTER SUBSCRIPTION $others DISABLE first"

if [ -z "$resume" ]; then
    # They keep their locks until somebody ends them, even across restarts.
    others=$(on 'the source' "
        SELECT string_agg(DISTINCT quote_literal(x.gid), ', ')
        FROM pg_locks AS l
             LEFT JOIN pg_class AS c ON l.locktype = 'relation' AND c.oid = l.relation
             JOIN pg_namespace AS n
                 ON n.oid = c.relnamespace
                    OR l.locktype = 'object' AND l.classid = 'pg_namespace'::regclass AND l.objid = n.oid
             JOIN pg_locks AS own USING (virtualtransaction)
             JOIN pg_prepared_xacts AS x ON x.transaction = own.transactionid
        WHERE n.nspname = :'schema' AND l.pid IS NULL AND l.database = (SELECT oid FROM pg_database
                                                                         WHERE datname = current_database())")
    [ -z "$others" ] || die "prepared transactions hold locks in the schema: COMMIT or ROLLBACK PREPARED $others"

    others=$(on 'the source' "
        SELECT string_agg(DISTINCT quote_ident(pubname), ', ') FROM pg_publication_tables
        WHERE schemaname = :'schema'")
    [ -z "$others" ] || say "publications are not moved: $others"

    look_at schema
    if [ "$restorer" = 'the target' ]; then
        # Each name outside the schema, which the target may find something else by.
        names=$(on 'the source' "$(used schema)
            SELECT encode(convert_to(coalesce(json_agg(DISTINCT jsonb_build_array(nspname, name)), '[]')::text, 'UTF8'),
                          'hex')
            FROM this, used, LATERAL (
                SELECT pronamespace, proname FROM pg_proc WHERE classid = 'pg_proc'::regclass AND oid = objid
                UNION ALL
                SELECT typnamespace, typname FROM pg_type WHERE classid = 'pg_type'::regclass AND oid = objid
                UNION ALL
                SELECT oprnamespace, oprname FROM pg_operator WHERE classid = 'pg_operator'::regclass AND oid = objid
                UNION ALL
                SELECT relnamespace, relname FROM pg_class WHERE classid = 'pg_class'::regclass AND oid = objid
            ) AS named (namespace, name) JOIN pg_namespace AS n ON n.oid = namespace
            WHERE namespace <> this.schema AND nspname <> 'pg_toast'")
        others=$(on 'the target' "
            SELECT string_agg(DISTINCT what, ', ')
            FROM json_array_elements(convert_from(decode('$names', 'hex'), 'UTF8')::json) AS name
                 JOIN pg_namespace AS n ON nspname = name->>0, LATERAL (
                SELECT format('schema %I, in which %I may create objects', nspname, rolname) FROM pg_roles
                WHERE NOT rolsuper AND rolname <> 'pg_database_owner' AND has_schema_privilege(oid, n.oid, 'CREATE')
                UNION ALL
                SELECT format('%I.%I of %I', nspname, found, rolname)
                FROM (SELECT proname, proowner FROM pg_proc WHERE pronamespace = n.oid
                      UNION ALL SELECT typname, typowner FROM pg_type WHERE typnamespace = n.oid
                      UNION ALL SELECT oprname, oprowner FROM pg_operator WHERE oprnamespace = n.oid
                      UNION ALL SELECT relname, relowner FROM pg_class WHERE relnamespace = n.oid) AS o (found, owner)
                     JOIN pg_roles AS r ON r.oid = owner
                WHERE found = name->>1 AND NOT rolsuper) AS found (what)")
        [ -z "$others" ] || die "a superuser must not restore what may use objects of others on the target: $others." \
            "Give them to superusers, and REVOKE CREATE ON SCHEMA. Or give the schema to an ordinary role, and use" \
            "--target-owner"
    fi

    # Only the definitions, in a transaction that is rolled back: this shows what the target lacks.
    say "rehearsing the definitions on the target"
    {
        echo "${no_timeout}BEGIN; SET LOCAL lock_timeout = '2s';"
        (dump "$schema" --schema-only --lock-wait-timeout=2s)
        echo "ROLLBACK;"
    } | db "$restorer" -v ON_ERROR_STOP=1 >/dev/null ||
        die "the target does not accept the definitions: see above. Nothing was changed"
    in_lock 'COMMIT;' || die "the session that holds the lock of this move is gone"

    # The rows also need the rows outside the schema that their foreign keys reference.
    side() {
        cat <<END
(SELECT encode(convert_to(json_build_object('schema', nspname, 'table', relname, 'columns', columns)::text, 'UTF8'), 'hex')
 FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace,
      (SELECT json_agg(attname ORDER BY n) FROM unnest($2) WITH ORDINALITY AS key (attnum, n)
            JOIN pg_attribute AS a USING (attnum) WHERE attrelid = $1) AS c (columns)
 WHERE t.oid = $1)
END
    }
    answer=$(on 'the source' "
        SELECT $(side conrelid conkey), $(side confrelid confkey), trim(to_json(conname)::text, '\"')
        FROM pg_constraint AS k
             JOIN pg_class AS c ON c.oid = conrelid
             JOIN pg_class AS r ON r.oid = confrelid AND r.relnamespace <> c.relnamespace
             JOIN pg_namespace AS s ON s.oid = c.relnamespace
        WHERE s.nspname = :'schema' AND contype = 'f' AND conparentid = 0 AND k.convalidated")
    while IFS='|' read -r from to name; do
        [ -n "$from" ] || continue
        keys=$(columns_of 'the source' "$from" |
            awk -F'\t' '{ for (i = 1; i <= NF; i++) if ($i == "\\N") next; print }' | LC_ALL=C sort -u)
        [ -n "$keys" ] || continue
        missing=$(columns_of 'the target' "$to" | LC_ALL=C sort -u |
            LC_ALL=C comm -13 - <(printf '%s\n' "$keys") | wc -l)
        [ "$missing" = 0 ] || die "foreign key $name: the target lacks $missing of the rows that it references"
    done <<<"$answer"
fi

# greatest SERVER: prints the greatest of the ids that the source may have minted and of those in the rows on SERVER,
# because ids from elsewhere may be greater than the mark.
greatest() {
    {
        on 'the source' 'SELECT coalesce(:"idgen".snowflake_max_id(mark_at), 0) FROM :"idgen".idgen_status' || return
        on "$1" "
            SELECT DISTINCT format('COPY %s (%I) TO STDOUT', leaf::regclass, c.\"column\")
            FROM :\"idgen\".idgen_columns() AS c
                 JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.\"column\"
                 JOIN pg_class AS t ON t.oid = c.relation, $leaves
            WHERE c.\"schema\" IN (:'schema', :'moving') AND a.atttypid = 'bigint'::regtype \gexec" || return
    } | LC_ALL=C awk '/^[0-9]/ && (length($0) > length(max) || length($0) == length(max) && $0 "" > max "") { max = $0 }
                      END { print max }'    # awk would round numbers
}
past=$(greatest 'the source')
# Clients would wait for a clock that is behind. The mark is up to 4 s ahead of the source's clock, whenever it mints.
has_js="EXISTS (SELECT FROM :\"idgen\".idgen_shard_stats WHERE shard = :shard AND layout = 'js53')
       OR EXISTS (SELECT FROM :\"idgen\".idgen_columns
                  WHERE \"schema\" IN (:'schema', :'moving', :'moved') AND expression LIKE '%snowflake_next_id_js%')"
latest=$(on 'the source' "
    SELECT extract(epoch FROM greatest(clock_timestamp(), :\"idgen\".snowflake_time(:past::bigint)))")
has_js_now=$(on 'the source' "SELECT $has_js")
behind=$(on 'the target' "
    SELECT round(behind, 1)
    FROM (SELECT $latest - extract(epoch FROM clock_timestamp() + CASE WHEN '$has_js_now' THEN interval '-1 s'
                                              ELSE current_setting('idgen.max_ahead')::interval END)) AS b (behind)
    WHERE behind > 6")
[ -z "$behind" ] ||
    die "the clock of the target is too far behind the ids of the source: clients would wait $behind s. Set the clocks"

# Nothing ends the wait of a commit for a synchronous standby that is down.
for server in 'the source' 'the target'; do
    on "$server" "SELECT pg_logical_emit_message(true, 'move-shard', '')" >/dev/null 2>&1 &
    for try in {1..100}; do
        kill -0 "$!" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$!" 2>/dev/null; then
        on "$server" "
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = '$PGAPPNAME' AND query LIKE '%emit_message%' AND pid <> pg_backend_pid()" >/dev/null
        die "a commit on $server did not end in 10 s. Are its synchronous standbys running?" \
            "synchronous_standby_names = '$(on "$server" "SHOW synchronous_standby_names")'"
    fi
    wait "$!" || die "cannot commit on $server"
done

# blockers MILLISECONDS: prints the sessions that use the schema's tables in transactions older than that.
blockers() {
    on 'the source' "
        SELECT string_agg(DISTINCT format('pid %s (%s, %s, in its transaction since %s)', a.pid,
                          coalesce(nullif(application_name, ''), backend_type), state, xact_start), ', ')
        FROM pg_locks AS l
             JOIN pg_namespace AS n
                 ON n.oid = CASE l.locktype WHEN 'relation' THEN (SELECT relnamespace FROM pg_class AS c
                                                                  WHERE c.oid = l.relation)
                                            WHEN 'object' THEN CASE l.classid WHEN 'pg_namespace'::regclass
                                                                              THEN l.objid END END
             JOIN pg_stat_activity AS a ON a.pid = l.pid
        WHERE n.nspname = :'schema' AND l.granted AND backend_type <> 'autovacuum worker'
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND coalesce(xact_start < clock_timestamp() - $1 * interval '1 ms', true)"
}

# The new name keeps everybody out: no transaction uses the tables at that moment, and later ones do not find them. The
# dump carries the name along, and the last step removes it. Clients queue behind a lock request that has to wait, so
# no lock is requested while there is a transaction that will not end soon, and each try is short.
close_schema() {
    local answer order deadline=$((SECONDS + CLOSE_TIMEOUT)) said=$SECONDS try=0 who
    while true; do
        who=$(blockers 1000)
        if [ -z "$who" ]; then
            # One order suits clients that insert a row into a table that refers to others, whose key is checked
            # afterwards; the other one suits clients that insert both. An autovacuum gives way after
            # deadlock_timeout.
            order=$([ $((try % 2)) = 0 ] && echo DESC || echo ASC)
            try=$((try + 1))
            if answer=$(on 'the source' "
                    \\set VERBOSITY verbose
                    BEGIN;
                    SET LOCAL lock_timeout = '900ms';
                    SET LOCAL deadlock_timeout = '300ms';
                    SELECT format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', nspname, relname)
                    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                    WHERE nspname = :'schema' AND relkind IN ('r', 'p') ORDER BY c.oid $order \gexec
                    SELECT format('ALTER SCHEMA %I RENAME TO %I', nspname, :'moving') FROM pg_namespace
                    WHERE nspname = :'schema'
                      AND EXISTS (SELECT FROM pg_locks WHERE pid = $lock_pid AND locktype = 'advisory') \gexec
                    SELECT format('COMMENT ON SCHEMA %I IS %L', nspname, concat_ws(E'\\n',
                                  'moves with shard $shard',
                                  CASE $comment_line WHEN 'moves with shard $shard' THEN $comment_of
                                       ELSE obj_description(oid, 'pg_namespace') END))
                    FROM pg_namespace WHERE nspname = :'moving' \gexec
                    COMMIT;" 2>&1); then
                [[ "$(state_of 'the source')" == *' moving'* ]] || die "the session that holds the lock of this move is gone"
                return
            fi
            # lock_not_available, or a deadlock, which then fails here and not at the client.
            [[ "$answer" == *' 55P03: '* || "$answer" == *' 40P01: '* ]] || die "$answer"
        fi
        [ $SECONDS -lt $deadline ] ||
            die "the schema was in use for $CLOSE_TIMEOUT s without a break. Transactions in its tables: $(blockers 0)"
        if [ $SECONDS -ge $((said + 5)) ]; then
            say "waiting for transactions in the schema: ${who:-$(blockers 0)}"
            said=$SECONDS
        fi
        sleep "0.$((RANDOM % 5 + 2))"
    done
}

# show_progress: shows how far the copy has got.
show_progress() {
    local where
    where=$(on 'the source' "
        SELECT format('copying %s: row %s', relid::regclass, tuples_processed) FROM pg_stat_progress_copy
        JOIN pg_stat_activity USING (pid) WHERE application_name = '$PGAPPNAME' AND $by_superuser" 2>/dev/null) || true
    [ -n "$where" ] || where=$(on 'the target' "
        SELECT format('on the target: %s', left(query, 60)) FROM pg_stat_activity
        WHERE application_name = '$PGAPPNAME' AND state = 'active' AND pid <> pg_backend_pid()" 2>/dev/null) || true
    say "${where:-copying}"
}

# --- The move.

if [ -z "$resume" ]; then
    # Let a program that cannot set a list fail now.
    if [ -n "$set_list" ]; then
        for server in source target; do
            "$set_list" "$server" "$(on "the $server" "SHOW idgen.allowed_shards")"
        done
    fi
    wait_for_commands "the schema was closed"
    say "closing schema $schema on the source"
    state=closed
    close_schema
else
    say "continuing the move of $schema"
    for server in 'the source' 'the target'; do end_others "$server"; done
    [ "$at_source" = ' moved' ] && state=opened || state=resumed
fi

say "withdrawing shard $shard from the source and its standbys"
withdrawn=yes
allow_all source "$without" || die "the shard could not be withdrawn"
# No command that begins from now on mints for the shard. The second is for a backend that already has a command and
# does not show it yet.
sleep 1
wait_for_commands "the shard was withdrawn"

if [ "$at_source" != ' moved' ]; then
    # An existing copy is not trusted, but made again.
    [[ "$at_target" != *moving* ]] || drop_copy
    say "copying the rows: $(on 'the source' "
        SELECT pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid)), 0))
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
        WHERE nspname = :'moving' AND relkind IN ('r', 'm')")"
    look_at moving
    # In a process group of its own, so that all of it can be ended.
    set -m
    {
        {
            echo "${no_timeout}BEGIN;"
            # No COMMIT unless the dump is complete.
            (dump "$moving") || exit
            echo "COMMENT ON SCHEMA $(quoted "$moving") IS '$PGAPPNAME'; COMMIT;"
        } | db "$restorer" -v ON_ERROR_STOP=1 >/dev/null
    } {hold}>&- &
    copy=$!
    set +m
    shown=$SECONDS
    while kill -0 "$copy" 2>/dev/null; do
        if [ $SECONDS -ge $((shown + 5)) ]; then
            show_progress &
            shown=$SECONDS
        fi
        sleep 0.1
    done
    wait "$copy" || die "the rows were not copied: see above"
    copy=''
    in_lock 'COMMIT;' || die "the session that holds the lock of this move is gone"
fi

# Every id that the source has minted is below its mark. A clock that is behind needs a moment to catch up.
past=$(greatest 'the target')
say "advancing the shard on the target past $past"
for try in {1..30}; do
    if answer=$(on 'the target' '\set VERBOSITY verbose
            SELECT :"idgen".snowflake_advance(:shard::integer, :past::bigint)' 2>&1); then break; fi
    [[ "$answer" == *' 22023: '* ]] && [ "$try" -lt 30 ] || die "$answer"
    sleep 1
done

# Ids of snowflake_next_id_js are not advanced: they begin with the second that the target's clock shows.
js_from=$(on 'the source' "
    SELECT extract(epoch FROM mark_at) + 1 FROM :\"idgen\".idgen_status WHERE $has_js")
if [ -n "$js_from" ]; then
    say "waiting until the target's clock has passed the last second of the source"
    on 'the target' "SELECT pg_sleep($js_from - extract(epoch FROM clock_timestamp()))" >/dev/null
fi

say "opening it on the target and its standbys"
with=$(list 'the target' with)
comment=$(PGCLIENTENCODING=UTF8 on 'the source' "SELECT quote_nullable($comment_of) FROM pg_namespace
                                                 WHERE nspname IN (:'moving', :'moved')")
if [ "$at_source" != ' moved' ]; then
    answer=$(state_of 'the target')
    [ "$answer" = ' moving' ] || die "the target has a schema $schema by now"
fi
# From here on, an interrupted run is finished and not undone. The name of the rows on the source says so.
if [ "$at_source" != ' moved' ]; then
    state=resumed
    in_lock 'ALTER SCHEMA :"moving" RENAME TO :"moved";' || die "could not record on the source that the target may mint"
fi
state=opened
[ -z "$set_list" ] || "$set_list" target "$with"
allow 'the target' "$with"
if [ "$(state_of 'the target')" != ' schema' ]; then
    PGCLIENTENCODING=UTF8 on 'the target' "BEGIN; ALTER SCHEMA :\"moving\" RENAME TO :\"schema\"; COMMENT ON SCHEMA :\"schema\" IS $comment; COMMIT;"
fi
state=done
for server in "${target[@]:1}"; do
    allow "$server" "$with" || say "still to be done on $server: $(list_by_hand "$with")"
done

say "done. ANALYZE the tables on the target. Once you no longer need the old rows, on the source:"
say "    DROP SCHEMA $(quoted "$moved") CASCADE;"
say "idgen.allowed_shards is now \"$without\" on the source, \"$with\" on the target, and likewise on the standbys named."
say "It must be the same on all of their standbys, including those that were not connected: ${away[*]:-none is known}"
