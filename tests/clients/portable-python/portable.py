"""Sends portable/idgen.sql unchanged through the tools that run migrations in Python. Each must create the same
functions and comments, to the last character, as libpq (which psql uses), and then be able to mint ids."""

import asyncio
import os
from pathlib import Path

import alembic.command
import alembic.config
import asyncpg
import django
import psycopg
import psycopg2
import sqlalchemy
from django.conf import settings

HERE = Path(__file__).resolve().parent
SQL = Path(os.environ["IDGEN_SCRIPT"]).read_text()
SHARDS = "SELECT set_config('idgen.allowed_shards', '0-7', true)"

# Everything that the script creates whose text a client could have changed.
MADE = """
    SELECT string_agg(oid::regprocedure || ' ' || pg_get_functiondef(oid) || obj_description(oid, 'pg_proc'), '/'
                      ORDER BY oid::regprocedure::text)
           || (SELECT string_agg(viewname || definition, '/' ORDER BY viewname)
               FROM pg_views WHERE schemaname = 'public')
    FROM pg_proc WHERE pronamespace IN ('public'::regnamespace, 'idgen_portable'::regnamespace)"""


def new_database(name):
    with psycopg.connect(autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return name


def url(driver, database):
    return f"postgresql+{driver}:///{database}"


def with_psycopg2(database):
    with psycopg2.connect(dbname=database) as connection, connection.cursor() as cursor:
        cursor.execute(SHARDS)
        cursor.execute(SQL)


def with_psycopg2_parameters(database):
    with psycopg2.connect(dbname=database) as connection, connection.cursor() as cursor:
        cursor.execute(SHARDS)
        cursor.execute(SQL, {"shard": 5})


def with_psycopg(database):
    with psycopg.connect(dbname=database) as connection:
        connection.execute(SHARDS)
        connection.execute(SQL)


def with_psycopg_parameters(database):
    with psycopg.connect(dbname=database) as connection:
        connection.execute(SHARDS)
        connection.execute(SQL, {})


def with_asyncpg(database):
    async def run():
        connection = await asyncpg.connect(database=database)
        async with connection.transaction():
            await connection.execute(SHARDS)
            await connection.execute(SQL)
        await connection.close()

    asyncio.run(run())


def with_sqlalchemy(driver, send):
    def run(database):
        engine = sqlalchemy.create_engine(url(driver, database))
        with engine.begin() as connection:
            connection.exec_driver_sql(SHARDS)
            send(connection)
        engine.dispose()

    return run


def as_text(connection):
    connection.execute(sqlalchemy.text(SQL))


def as_driver_sql(connection):
    connection.exec_driver_sql(SQL)


def with_alembic(database):
    config = alembic.config.Config()
    config.set_main_option("script_location", str(HERE / "alembic"))
    config.set_main_option("sqlalchemy.url", url("psycopg", database))
    alembic.command.upgrade(config, "head")
    with psycopg.connect(dbname=database) as connection:
        clones = connection.execute("""
            SELECT count(*) FROM idgen_columns
            WHERE schema = 'shard' || shard AND (schema || '.users')::regclass IN (
                SELECT attrelid FROM pg_attribute WHERE attname = 'email')""").fetchone()
        assert clones == (2 * 64,), clones
        connection.execute("DROP PROCEDURE on_each_shard")


def use_django(database):
    from django.db import connections

    connections.close_all()
    connections["default"].settings_dict["NAME"] = database


def with_django_migration(database):
    from django.core.management import call_command

    use_django(database)
    call_command("migrate", verbosity=0)


def with_django_cursor(params):
    def run(database):
        from django.db import connection, transaction

        use_django(database)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(SHARDS)
            cursor.execute(SQL, params)

    return run


def look(database):
    """What exists after a client has run the script."""
    with psycopg.connect(dbname=database, autocommit=True) as connection:
        ids = connection.execute("SELECT shard_of(snowflake_next_id(5)) FROM generate_series(1, 10)").fetchall()
        assert ids == [(5,)] * 10, ids
        shards = connection.execute("SELECT allowed_shards FROM idgen_status").fetchone()
        assert shards == ("0-7",), shards
        connection.execute("CREATE TABLE t (id bigint DEFAULT snowflake_next_id(5), n text DEFAULT '50% ?')")
        connection.execute("SELECT snowflake_assign_shard('public', 7)")
        default = connection.execute("""SELECT shard, expression FROM idgen_columns WHERE "table" = 't'""").fetchall()
        assert default == [(7, "public.snowflake_next_id(7)")], default
        return connection.execute(MADE).fetchone()[0]


WAYS = {
    "psycopg2": with_psycopg2,
    "psycopg2_parameters": with_psycopg2_parameters,
    "psycopg": with_psycopg,
    "psycopg_parameters": with_psycopg_parameters,
    "asyncpg": with_asyncpg,
    "text_psycopg2": with_sqlalchemy("psycopg2", as_text),
    "text_psycopg": with_sqlalchemy("psycopg", as_text),
    "driver_sql_psycopg2": with_sqlalchemy("psycopg2", as_driver_sql),
    "driver_sql_psycopg": with_sqlalchemy("psycopg", as_driver_sql),
    "alembic": with_alembic,
    "django_migration": with_django_migration,
    "django_cursor": with_django_cursor(None),
    "django_cursor_parameters": with_django_cursor([]),
}

settings.configure(
    INSTALLED_APPS=["shop"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}},
)
django.setup()

expected = None
for name, way in WAYS.items():
    database = new_database(name)
    way(database)
    made = look(database)
    expected = expected or made
    assert made == expected, f"{name} changed the script on its way to the server"
    print(f"{name}: the same functions, views and comments")
