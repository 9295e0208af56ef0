"""The reader hands on every row, in order, while transactions mint early and commit late, and while it is killed."""

import os
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


def wait_until(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "the readers make no progress"
        time.sleep(0.05)


def handled(said):
    """The ids that the readers have handled. A seek would move the place where they write."""
    text = os.pread(said.fileno(), os.fstat(said.fileno()).st_size, 0)
    return [int(line.split()[0]) for line in text.decode().splitlines()]


def missed(connection, said):
    """The ids of rows that the readers have passed without handling them."""
    passed = connection.execute("SELECT id FROM outbox, followed WHERE id < upto").fetchall()
    return {id for [id] in passed}.difference(handled(said))


def follow(program, is_enough):
    """Lets two readers follow four writers until it is enough. Returns the ids that they handled and those of the table."""
    with psycopg.connect(autocommit=True) as connection, tempfile.TemporaryFile() as said:
        connection.execute("""
            DROP TABLE IF EXISTS outbox, followed;
            CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), message text);
            CREATE TABLE followed AS SELECT 0::bigint AS upto""")
        stop = threading.Event()
        writers = [threading.Thread(target=write, args=[stop]) for _ in range(4)]
        for writer in writers:
            writer.start()
        start = [sys.executable, "-c", program]
        # One of them waits for the other.
        readers = [subprocess.Popen(start, stdout=said) for _ in range(2)]
        try:
            for n in range(KILLS):
                before = len(handled(said))
                wait_until(lambda: len(handled(said)) > before)
                time.sleep(random.random() / 4)
                readers[n % 2].kill()
                readers[n % 2].wait()
                readers[n % 2] = subprocess.Popen(start, stdout=said)
            wait_until(lambda: is_enough(connection, said))
            stop.set()
            for writer in writers:
                writer.join()
            arrived = "SELECT upto > (SELECT max(id) FROM outbox) FROM followed"
            wait_until(lambda: connection.execute(arrived).fetchone()[0])
            assert all(reader.poll() is None for reader in readers), "a reader has ended"
        finally:
            stop.set()
            for reader in readers:
                reader.kill()
                reader.wait()
        return handled(said), [id for [id] in connection.execute("SELECT id FROM outbox ORDER BY id")]


once, ids = follow(PROGRAM, lambda connection, said: len(handled(said)) > 500)
print(f"{len(ids)} rows, {len(once) - len(set(once))} of them handled again after {KILLS} kills")
assert list(dict.fromkeys(once)) == ids, "each row, in order"
assert len(once) - len(ids) <= KILLS * 100

# Without the horizon, this test finds that rows are missed.
assert PROGRAM.count("snowflake_safe_horizon()") == 1
once, ids = follow(PROGRAM.replace("snowflake_safe_horizon()", "9223372036854775807"), missed)
print(f"{len(set(ids).difference(once))} of {len(ids)} rows missed without the horizon")
assert set(ids).difference(once)
