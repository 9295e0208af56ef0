# Sourced by the `run` of a client of the portable edition. Starts a server without the library and without a network
# port, on which an ordinary role may create databases, and points the client to it. The runner's server will not do: it
# preloads the library, whose settings differ from those of the script.
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
