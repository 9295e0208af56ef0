"""What an application does, and the traps that docs/orm/python.md warns of."""

import os
from datetime import datetime, timedelta, timezone

from pony.orm import (
    Database, PrimaryKey, ProgrammingError, Required, Set, UnexpectedError, db_session, flush, raw_sql, select)

db = Database()
db.bind("postgres", os.environ["DATABASE_URL"], options="-c idgen.shard=7")


class User(db.Entity):
    _table_ = "users"
    id = PrimaryKey(int, size=64, sql_default="snowflake_next_id()")
    name = Required(str)
    photos = Set("Photo")


class Photo(db.Entity):
    _table_ = "photos"
    id = PrimaryKey(int, size=64, sql_default="snowflake_next_id()")
    user = Required(User)
    caption = Required(str)


db.generate_mapping(create_tables=True)

begin = datetime.now(timezone.utc)
with db_session:
    ada = User(name="Ada")
    flush()
    assert 2**53 < ada.id < 2**63 and ada.id >> 10 & 8191 == 7
    ada.name = "Grace"
    flush()
    assert db.select("id, name FROM users") == [(ada.id, "Grace")]
    assert db.get("count(*) FROM pg_sequences WHERE sequencename ~ '^(users|photos)'") == 0
    assert db.get("format_type(atttypid, NULL) FROM pg_attribute"
                  " WHERE attrelid = 'photos'::regclass AND attname = 'user'") == "bigint"

    photos = [Photo(user=ada, caption=f"photo {n}") for n in range(3000)]
    flush()
    ids = [photo.id for photo in photos]
    assert ids == sorted(set(ids)) and ids[0] > ada.id
    # Each row took a statement of its own.
    assert db.local_stats['INSERT INTO "photos" ("user", "caption") VALUES (%(p1)s, %(p2)s) RETURNING "id"'].db_count == 3000

    since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
    found = select(p for p in Photo if raw_sql("snowflake_between(p.id, $since, $until)")).order_by(Photo.id)
    assert [photo.id for photo in found] == ids
    last = ids[499]
    assert [p.id for p in select(p for p in Photo if p.id > last).order_by(Photo.id)[:100]] == ids[500:600]

    shard = 9
    assert db.get("shard_of(snowflake_next_id($shard))") == 9
    db.execute("SELECT set_config('idgen.shard', '9', true)")
    assert db.get("shard_of(snowflake_next_id())") == 9
with db_session:
    assert db.get("shard_of(snowflake_next_id())") == 7


def bound():
    other = Database()
    other.bind("postgres", os.environ["DATABASE_URL"])
    return other


# A default other than that of auto.
other = bound()
type("Label", (other.Entity,), {"id": PrimaryKey(int, size=64, auto=True, sql_default="snowflake_next_id()")})
try:
    other.generate_mapping(create_tables=True)
    raise RuntimeError("the table was created")
except ProgrammingError as error:
    assert "multiple default values" in str(error), error

# A key of four bytes.
other = bound()
Note = type("Note", (other.Entity,), {"id": PrimaryKey(int, sql_default="snowflake_next_id()"), "body": Required(str)})
other.generate_mapping(create_tables=True)
try:
    with db_session:
        Note(body="a")
        flush()
    raise RuntimeError("the row was inserted")
except UnexpectedError as error:
    assert "integer out of range" in str(error), error
print("used: a row, 3000 rows, a page, a range of time, and the traps")
