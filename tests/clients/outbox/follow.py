"""The reader hands on every row, in order, while transactions mint early and commit late, and while it is killed."""

import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

PROGRAM = Path(sys.argv[1]).read_text()
KILLS = 6


def write(stop):
    with psycopg.connect(autocommit=True) as connection:
        while not stop.is_set():
            try:
                with connection.transaction():
                    for n in range(3):
                        connection.execute("INSERT INTO outbox (message) VALUES (%s)", [f"message {n}"])
                        time.sleep(random.random() / 50)
                    if random.random() < 0.1:
                        raise psycopg.Rollback
            except psycopg.Rollback:
                pass


def follow(program):
    """Follows four writers with this program, and returns the ids that it handled and those of the table."""
    with psycopg.connect(autocommit=True) as connection, tempfile.TemporaryFile("w+") as said:
        connection.execute("""
            DROP TABLE IF EXISTS outbox, followed;
            CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), message text);
            CREATE TABLE followed AS SELECT 0::bigint AS upto""")
        stop = threading.Event()
        writers = [threading.Thread(target=write, args=[stop]) for _ in range(4)]
        for writer in writers:
            writer.start()
        start = [sys.executable, "-c", program]
        # Two readers at a time; one of them waits.
        readers = [subprocess.Popen(start, stdout=said) for _ in range(2)]
        for n in range(KILLS):
            time.sleep(0.5 + random.random())
            readers[n % 2].kill()
            readers[n % 2].wait()
            readers[n % 2] = subprocess.Popen(start, stdout=said)
        stop.set()
        for writer in writers:
            writer.join()
        until = time.monotonic() + 60
        while not connection.execute("SELECT upto > (SELECT max(id) FROM outbox) FROM followed").fetchone()[0]:
            assert time.monotonic() < until, "the reader does not arrive"
            time.sleep(0.1)
        for reader in readers:
            assert reader.poll() is None, "a reader has ended"
            reader.kill()
            reader.wait()
        said.seek(0)
        handled = [int(line.split()[0]) for line in said]
        return handled, [id for [id] in connection.execute("SELECT id FROM outbox ORDER BY id")]


handled, ids = follow(PROGRAM)
print(f"{len(ids)} rows, {len(handled) - len(set(handled))} of them handled again after {KILLS} kills")
assert len(ids) > 200
assert list(dict.fromkeys(handled)) == ids, "each row, in order"
assert len(handled) - len(ids) <= KILLS * 100

# Without the horizon, this test finds that rows are missed.
assert PROGRAM.count("snowflake_safe_horizon()") == 1
handled, ids = follow(PROGRAM.replace("snowflake_safe_horizon()", "9223372036854775807"))
missed = set(ids) - set(handled)
print(f"{len(missed)} of {len(ids)} rows missed without the horizon")
assert missed
