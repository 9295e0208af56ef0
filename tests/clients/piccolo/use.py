import asyncio
from datetime import datetime, timedelta, timezone

from gallery.tables import Photos, Users
from piccolo.columns.combination import WhereRaw
from piccolo_conf import DB


async def value(sql, *values):
    return (await Users.raw(sql, *values))[0]["value"]


async def use():
    begin = datetime.now(timezone.utc)
    ada = Users(name="Ada")
    await ada.save()
    assert 2**53 < ada.id < 2**63 and ada.id >> 10 & 8191 == 7
    ada.name = "Grace"
    await ada.save()
    assert await Users.select() == [{"id": ada.id, "name": "Grace"}]
    assert await value("SELECT count(*) AS value FROM pg_sequences WHERE sequencename ~ '^(users|photos)'") == 0
    assert await value(
        "SELECT format_type(atttypid, NULL) AS value FROM pg_attribute"
        " WHERE attrelid = 'photos'::regclass AND attname = 'user'") == "bigint"

    captions = [f"photo {n}" for n in range(3000)]
    photos = [Photos(user=ada, caption=caption) for caption in captions]
    returned = await Photos.insert(*photos)
    ids = [photo.id for photo in photos]
    assert ids == sorted(set(ids)) and ids[0] > ada.id and returned == [{"id": id} for id in ids]
    rows = await Photos.select(Photos.id, Photos.caption).order_by(Photos.id)
    assert [tuple(row.values()) for row in rows] == list(zip(ids, captions))

    since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
    found = await Photos.objects().where(WhereRaw("snowflake_between(id, {}, {})", since, until)).order_by(Photos.id)
    assert [photo.id for photo in found] == ids
    page = await Photos.select(Photos.id).where(Photos.id > ids[499]).order_by(Photos.id).limit(100)
    assert [row["id"] for row in page] == ids[500:600]

    # An upsert returns the ids of old rows, too.
    joan = await Users.objects().get_or_create(Users.name == "Joan")
    upserted = [Photos(user=joan, caption=captions[0]), Photos(user=joan, caption="new")]
    await Photos.insert(*upserted).on_conflict(target=Photos.caption, action="DO UPDATE", values=[Photos.user])
    assert upserted[0].id == ids[0] and upserted[1].id > ids[-1]
    assert await Photos.count() == 3001

    async with DB.transaction():
        await Users.raw("SELECT set_config('idgen.shard', {}, true)", "9")
        assert await value("SELECT shard_of(snowflake_next_id()) AS value") == 9
    assert await value("SELECT shard_of(snowflake_next_id()) AS value") == 7
    assert await value("SELECT shard_of(snowflake_next_id({})) AS value", 9) == 9


asyncio.run(use())
print("used: a row, 3000 rows, a page, a range of time, an upsert")
