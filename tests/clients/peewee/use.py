from datetime import datetime, timedelta, timezone

from peewee import fn

from models import Photo, User, db


def value(sql, *values):
    return db.execute_sql(sql, values).fetchone()[0]


begin = datetime.now(timezone.utc)
ada = User.create(name="Ada")
assert 2**53 < ada.id < 2**63 and ada.id >> 10 & 8191 == 7
ada.name = "Grace"
ada.save()
assert list(User.select().dicts()) == [{"id": ada.id, "name": "Grace"}]
assert value("SELECT count(*) FROM pg_sequences WHERE sequencename ~ '^(users|photos)'") == 0
assert value(
    "SELECT format_type(atttypid, NULL) FROM pg_attribute"
    " WHERE attrelid = 'photos'::regclass AND attname = 'user_id'") == "bigint"

photos = [Photo(user=ada, caption=f"photo {n}") for n in range(3000)]
Photo.bulk_create(photos)
ids = [photo.id for photo in photos]
assert ids == sorted(set(ids)) and ids[0] > ada.id
assert [(p.id, p.caption) for p in photos] == list(Photo.select(Photo.id, Photo.caption).order_by(Photo.id).tuples())
photos[0].caption = "changed"
photos[0].save()
assert Photo.select().count() == 3000
returned = Photo.insert_many([{"user": ada, "caption": "a"}, {"user": ada, "caption": "b"}]).execute()
assert list(returned) == list(Photo.select(Photo.id).where(Photo.id > ids[-1]).order_by(Photo.id).tuples())

since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
found = Photo.select().where(fn.snowflake_between(Photo.id, since, until)).order_by(Photo.id)
assert [photo.id for photo in found][:3000] == ids
page = Photo.select().where(Photo.id > ids[499]).order_by(Photo.id).limit(100)
assert [photo.id for photo in page] == ids[500:600]

# An upsert returns the id of the old row.
joan = User.create(name="Joan")
upsert = Photo.insert(user=joan, caption="changed").on_conflict(conflict_target=[Photo.caption], preserve=[Photo.user])
assert upsert.execute() == ids[0] and Photo.get_by_id(ids[0]).user == joan

with db.atomic():
    db.execute_sql("SELECT set_config('idgen.shard', %s, true)", ("9",))
    assert User.create(name="of shard 9").id >> 10 & 8191 == 9
assert User.create(name="of shard 7").id >> 10 & 8191 == 7
assert value("SELECT shard_of(snowflake_next_id(%s))", 9) == 9
print("used: a row, 3000 rows, a page, a range of time, an upsert")
