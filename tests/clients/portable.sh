# Sourced by the `run` of a client that takes the portable edition: starts a server without the library, on which
# an ordinary role may make databases, and leads the client there. It has no network port. That of the runner has the
# library preloaded, whose settings are not those of the script.
here=$PWD
. ../../../scripts/lib/common.sh
. scripts/lib/server.sh
new_room "$(basename "$here")"
init_empty
new_server <<<''
client psql -X -q -d postgres -c "CREATE ROLE app LOGIN CREATEDB"
export PGHOST=$socket_dir PGPORT=$port PGUSER=app PGDATABASE=postgres IDGEN_SCRIPT=$TOP/portable/idgen.sql
unset PGPASSWORD DATABASE_URL
cd "$here"
