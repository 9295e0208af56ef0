# Hands each new row of an outbox to handle(), at least once and in the order of the ids, and misses none; see
# docs/cookbook.md, which creates the two tables. PGHOST, PGDATABASE and the like name the primary:
#     pip install "psycopg[binary]" && python outbox.py
import sys
import time

import psycopg

PAGE = 100


def handle(id, message):
    """Sends the message to its receiver, which ignores an id that it has seen."""
    print(id, message, flush=True)


def next_page(connection):
    with connection.transaction():
        # A second reader waits here.
        connection.execute("SELECT pg_advisory_xact_lock('followed'::regclass::bigint)")
        [upto] = connection.execute("SELECT upto FROM followed").fetchone()
        [horizon] = connection.execute("SELECT snowflake_safe_horizon()").fetchone()
        rows = connection.execute(
            "SELECT id, message FROM outbox WHERE id >= %s AND id < %s ORDER BY id LIMIT %s", [upto, horizon, PAGE]
        ).fetchall()
        for id, message in rows:
            handle(id, message)
        if rows:
            connection.execute("UPDATE followed SET upto = %s", [rows[-1][0] + 1])
    return len(rows)


while True:
    try:
        with psycopg.connect(autocommit=True) as connection:
            while True:
                if next_page(connection) < PAGE:
                    time.sleep(0.1)
    except psycopg.OperationalError as error:    # 40001, or the server is away
        print(error, file=sys.stderr)
        time.sleep(1)
