# Sourced after common.sh: a throw-away server in $room, whose files are in $data. It has no network port.
unset PGHOSTADDR PGOPTIONS PGSERVICE PGSERVICEFILE    # nothing may lead to another server

[ -x "${RELEASE_BIN:-}/initdb" ] || die "no server of our own: run scripts/setup and scripts/build first"
bin=$RELEASE_BIN    # whose programs are run; to be set before the server starts
port=5432           # names the socket only
socket_dir=
start_options=()    # of pg_ctl

stop() { [ ! -f "$data/postmaster.pid" ] || as_server "$bin/pg_ctl" -D "$data" -s -w -m "$1" stop; }
clean_up() {
    stop immediate || true
    [ -z "$socket_dir" ] || rm -rf "$socket_dir"
}

# new_room NAME: an empty folder for all files, $HOUSE/NAME.
new_room() {
    room=$HOUSE/$1
    data=$room/data
    trap clean_up EXIT
    stop immediate || true    # one that an interrupted run left behind
    rm -rf "$room"
    mkdir -p "$room"
    # A socket's path may have no more than 107 characters; the one of this folder may be longer.
    socket_dir=$(mktemp -d /tmp/idgen-server.XXXXXX)
    if [ "$(id -u)" = 0 ]; then chown "$SERVER_USER" "$room" "$socket_dir"; fi
}

# init_server DIR [option of initdb]...: a new cluster, whose configuration goes on with standard input.
init_server() {
    local dir=$1
    shift
    as_server "$bin/initdb" -D "$dir" -U postgres -A trust -E UTF8 --no-locale "$@" >"$room/initdb.log" ||
        { cat "$room/initdb.log"; die "initdb failed"; }
    { printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$socket_dir'" "port = $port" && cat; } |
        as_server tee -a "$dir/postgresql.conf" >/dev/null
}

start_server() {
    as_server "$bin/pg_ctl" -D "$data" -s -w -l "$data/server.log" \
        ${start_options[@]+"${start_options[@]}"} start ||
        { cat "$data/server.log"; die "the server did not start"; }
}

# new_server: one with the configuration on standard input, from a copy of the cluster $room/empty.
new_server() {
    as_server rm -rf "$data"
    as_server cp -R -p "$room/empty" "$data"
    as_server tee "$data/idgen.conf" >/dev/null
    start_server
}

# The cluster that all of a script's servers begin with: one initdb serves all, and each finds nothing of the
# one before.
init_empty() {
    init_server "$room/empty" --no-sync <<'END_OF_CONF'
fsync = off
log_line_prefix = ''
include = 'idgen.conf'
END_OF_CONF
}

# The differences that tests found: shown at the end, which is what is left of a long log.
differences=()
report() {
    [ ${#differences[@]} -gt 0 ] || return 0
    cat "${differences[@]}" || true    # pg_regress writes none where it could not begin
    die "failed: ${differences[*]}
What the tests printed is in $room/out, what the last server logged in $data/server.log"
}
