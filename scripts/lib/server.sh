# Sourced after common.sh: a throw-away server in $room, with its files in $data. It has no network port.
unset PGHOSTADDR PGOPTIONS PGSERVICE PGSERVICEFILE    # nothing may lead to another server

bin=${RELEASE_BIN:-}    # the folder of its programs; a script may set it before the server starts
port=5432               # names the socket only
start_options=()        # of pg_ctl

# at_room NAME: uses the folder $HOUSE/NAME, with its content, for all files.
at_room() {
    room=$HOUSE/$1
    data=$room/data
    # The path of a socket has at most 107 characters; $room may be longer.
    socket_dir=$(cat "$room/socket-dir" 2>/dev/null || true)
    [ ! -e "$room/bin" ] || bin=$room/bin
}

# stop MODE: stops the server if it runs.
stop() {
    [ -f "$data/postmaster.pid" ] || return 0
    local SERVER_USER=$SERVER_USER
    # Root may find a server that an ordinary user has started.
    [ "$(id -u)" != 0 ] || SERVER_USER=$(stat -c %U "$data")
    (cd "$room" && as_server "$bin/pg_ctl" -D "$data" -s -w -m "$1" stop)
}
clean_up() {
    stop immediate || true
    case $socket_dir in /tmp/idgen-server.*) rm -rf "$socket_dir" ;; esac
}

# new_room NAME: as at_room, but empties the folder first. When the script ends, its server is stopped.
new_room() {
    own_build
    at_room "$1"
    clean_up
    rm -rf "$room"
    bin=$RELEASE_BIN
    trap clean_up EXIT
    mkdir -p "$room"
    socket_dir=$(mktemp -d /tmp/idgen-server.XXXXXX)    # only its owner may enter it, and needs no password
    echo "$socket_dir" >"$room/socket-dir"
    if [ "$(id -u)" = 0 ]; then chown "$SERVER_USER" "$room" "$socket_dir"; fi
}

# client PROGRAM [ARG]...: runs a program of PostgreSQL against the server.
client() { "$bin/$1" -h "$socket_dir" -p "$port" -U postgres "${@:2}"; }

# init_server DIR [option of initdb]...: creates a new cluster, and appends standard input to its configuration.
init_server() {
    local dir=$1
    shift
    [ -x "$bin/initdb" ] || die "there is no server of our own: run scripts/build first"
    (cd "$room" && as_server "$bin/initdb" -D "$dir" -U postgres -A trust -E UTF8 --no-locale "$@") \
        >"$room/initdb.log" || { cat "$room/initdb.log"; die "initdb failed"; }
    { printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$socket_dir'" "port = $port" && cat; } |
        as_server tee -a "$dir/postgresql.conf" >/dev/null
}

start_server() {
    (cd "$room" && as_server "$bin/pg_ctl" -D "$data" -s -w -l "$data/server.log" \
        ${start_options[@]+"${start_options[@]}"} start) ||
        { cat "$data/server.log"; die "the server did not start"; }
}

# keep_old_settings FILE: keeps those of old_settings.conf that this PostgreSQL accepts. Version 19 has only standard
# strings.
keep_old_settings() {
    [ "$PG_MAJOR" -lt 19 ] || sed -Ei '/^(standard_conforming_strings|escape_string_warning) /d' "$1"
}

# new_server: starts a server with the configuration on standard input, from a copy of the cluster $room/empty.
new_server() {
    as_server rm -rf "$data"
    as_server cp -R -p "$room/empty" "$data"
    as_server tee "$data/idgen.conf" >/dev/null
    start_server
}

# Creates the cluster from which all servers of a script start: a single initdb serves all servers, and none sees the
# data of the previous one.
init_empty() {
    init_server "$room/empty" --no-sync <<'END_OF_CONF'
fsync = off
log_line_prefix = ''
include = 'idgen.conf'
END_OF_CONF
}

# Shows the differences found by tests at the end of the log, which may be long.
differences=()
report() {
    [ ${#differences[@]} -gt 0 ] || return 0
    cat "${differences[@]}" || true    # pg_regress writes none where it could not begin
    die "failed: ${differences[*]}
What the tests printed is in $room/out, what the last server logged in $data/server.log"
}
