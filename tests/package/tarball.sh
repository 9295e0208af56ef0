#!/usr/bin/env bash
# The life of the tarball on a server without pg_config, in an old Debian. "scripts/test-package package" runs this as
# root, in a Debian made for it.
#   tarball.sh VERSION TARBALL SERVER
. tests/package/common.sh
version=$1 tarball=$2
cp -a "$3" /opt/postgresql
bin=/opt/postgresql/bin
extension=/opt/postgresql/share/postgresql/extension
log=/var/tmp/server.log
export BINDIR=$bin PKGLIBDIR=/opt/postgresql/lib/postgresql SHAREDIR=/opt/postgresql/share/postgresql
export PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres

trap '[ $? = 0 ] || tail -n 20 "$log" 2>/dev/null || true' EXIT
as_postgres() { runuser -u postgres -- "$@"; }
server() { as_postgres "$bin/pg_ctl" -D /var/tmp/data -s -w -l "$log" "$@" || die "no $1"; }
preload() { sql "ALTER SYSTEM SET shared_preload_libraries = $1"; server restart; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$@"; }

useradd -r postgres
cd /var/tmp
as_postgres "$bin/initdb" -D /var/tmp/data -U postgres -A trust -E UTF8 --no-locale --no-sync >initdb.log
as_postgres tee -a /var/tmp/data/postgresql.conf >/dev/null <<'END'
listen_addresses = ''
unix_socket_directories = '/tmp'
fsync = off
END
cd "$OLDPWD"

promise "the tarball installs itself on a server without pg_config, given its folders"
tar -C /root -xzf "$tarball"
install=$(echo /root/idgen-"$version"-pg*/install)
"$install" | tail -n1
cmp "$PKGLIBDIR/idgen.so" "${install%/*}/lib/idgen.so"
same_program "$version" "$bin/idgenctl"

promise "$(ldd --version | head -n1) and $("$bin/postgres" --version): preloaded beside other libraries, it mints"
server start
preload "auto_explain, idgen, pg_stat_statements"
sql "CREATE EXTENSION pg_stat_statements"
sql "CREATE EXTENSION idgen"
begin_minting

promise "errors have the same texts and SQLSTATEs as elsewhere, and other SQL tests pass too"
sql "CREATE DATABASE regression"
sql "CREATE EXTENSION idgen" -d regression
for name in errors forms layouts decode generate columns parallel plans privileges refusals stats surface; do
    # As pg_regress does it, which this Debian lacks.
    PG_ABS_SRCDIR=tests/pg_regress PGTZ=America/Los_Angeles PGDATESTYLE='Postgres, MDY' \
        psql -X -a -q -d regression -v HIDE_TABLEAM=on -v HIDE_TOAST_COMPRESSION=on \
        <"tests/pg_regress/sql/$name.sql" >"/tmp/$name.out" 2>&1 || true
    diff "tests/pg_regress/expected/$name.out" "/tmp/$name.out" || die "the output of the test $name differs"
done
sql "DROP DATABASE regression"

promise "after a restart and after a crash, it repeats no id"
export PGOPTIONS="-c idgen.max_wait=10s"    # a mark may lie ahead of the clock
server restart
mint
server stop -m immediate
server start
mint

promise "ALTER EXTENSION UPDATE leads from the oldest release to this one"
oldest=$(printf '%s\n' sql/install/idgen--*.sql | sort -V | head -n1)
cp "$oldest" "$extension"
oldest=${oldest#*--}
sql "CREATE DATABASE older"
sql "CREATE EXTENSION idgen VERSION '${oldest%.sql}'" -d older
sql "ALTER EXTENSION idgen UPDATE" -d older
same "version" "$version" "$(sql "SELECT extversion FROM pg_extension WHERE extname = 'idgen'" -d older)"
sql "DROP DATABASE older"

promise "it deletes what it has installed; rows keep their ids"
sql "ALTER TABLE minted ALTER id DROP DEFAULT"
sql "DROP EXTENSION idgen"
preload auto_explain
"$install" remove
same "files" "" "$(left_files -o -path /root)"
same "rows" "$minted" "$(sql "SELECT count(*) FROM minted")"
server stop
