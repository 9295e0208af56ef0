from datetime import datetime, timedelta, timezone

from pypika_tortoise import CustomFunction
from tortoise import Tortoise, connections, run_async
from tortoise.expressions import Function
from tortoise.transactions import in_transaction

from models import Photo, User
from settings import TORTOISE_ORM


class SnowflakeBetween(Function):
    database_func = CustomFunction("snowflake_between", ["id", "since", "until"])


async def value(sql, *values):
    return (await connections.get("default").execute_query_dict(sql, list(values)))[0]["value"]


async def use():
    await Tortoise.init(TORTOISE_ORM)
    begin = datetime.now(timezone.utc)
    ada = await User.create(name="Ada")
    assert 2**53 < ada.id < 2**63 and ada.id >> 10 & 8191 == 7
    ada.name = "Grace"
    await ada.save()
    assert await User.all().values("id", "name") == [{"id": ada.id, "name": "Grace"}]
    for table in ("user", "photo"):
        assert await value("SELECT count(*) AS value FROM pg_sequences WHERE sequencename ~ $1", table) == 0
    assert await value(
        "SELECT format_type(atttypid, NULL) AS value FROM pg_attribute"
        " WHERE attrelid = 'photo'::regclass AND attname = 'user_id'") == "bigint"

    # bulk_create returns no ids.
    captions = [f"photo {n}" for n in range(3000)]
    photos = [Photo(user=ada, caption=caption) for caption in captions]
    assert await Photo.bulk_create(photos) is None
    assert {photo.id for photo in photos} == {None}
    ids = await Photo.all().order_by("id").values_list("id", flat=True)
    assert len(ids) == 3000 and ids[0] > ada.id
    assert await Photo.all().order_by("id").values_list("caption", flat=True) == captions

    since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
    found = Photo.annotate(found=SnowflakeBetween("id", since, until)).filter(found=True)
    assert await found.count() == 3000
    plan = await Photo.annotate(found=SnowflakeBetween("id", since, since)).filter(found=True).explain()
    assert "Index Cond" in str(plan), plan
    page = await Photo.filter(id__gt=ids[499]).order_by("id").limit(100).values_list("id", flat=True)
    assert page == ids[500:600]

    # Upserts.
    joan = await User.create(name="Joan")
    again = [Photo(user=joan, caption=captions[0])]
    await Photo.bulk_create(again, on_conflict=["caption"], update_fields=["user_id"])
    assert await Photo.get(caption=captions[0]).values_list("id", "user__name") == (ids[0], "Joan")
    photo, created = await Photo.update_or_create(caption=captions[0], defaults={"user": ada})
    assert (photo.id, created) == (ids[0], False)
    assert await Photo.all().count() == 3000

    async with in_transaction() as connection:
        await connection.execute_query("SELECT set_config('idgen.shard', $1, true)", ["9"])
        assert (await User.create(name="of shard 9", using_db=connection)).id >> 10 & 8191 == 9
    assert (await User.create(name="of shard 7")).id >> 10 & 8191 == 7
    assert await value("SELECT shard_of(snowflake_next_id($1)) AS value", 9) == 9


run_async(use())
print("used: a row, 3000 rows, a page, a range of time, upserts")
