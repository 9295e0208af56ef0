"""Shows each trap that docs/orm/python.md warns of."""

import subprocess

from tortoise import Tortoise, connections, run_async

from models import Photo, User
from settings import TORTOISE_ORM


async def an_object_of_bulk_create_is_inserted_again():
    ada = await User.create(name="Ada")
    photos = [Photo(user=ada, caption="first"), Photo(user=ada, caption="second")]
    await Photo.bulk_create(photos)
    before = await Photo.all().count()
    photos[0].caption = "changed"
    await photos[0].save()
    assert await Photo.all().count() == before + 1
    assert await Photo.filter(caption="first").count() == 1


def tortoise(*arguments):
    return subprocess.run(["tortoise", "-c", "settings.LABELS", *arguments], check=True, capture_output=True, text=True).stdout


async def a_db_default_is_forgotten_by_migrations_which_then_replace_the_keys():
    tortoise("init")
    tortoise("makemigrations")
    tortoise("migrate")
    database = connections.get("default")

    async def rows(sql):
        return [tuple(row.values()) for row in await database.execute_query_dict(sql)]

    assert await rows("INSERT INTO label (name) VALUES ('a') RETURNING id") == [(1,)], "not from a sequence"
    await rows("INSERT INTO note (label_id) VALUES (1)")
    foreign_keys = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'note'::regclass AND contype = 'f'"
    assert await rows(foreign_keys) == [(1,)]

    ids = [1]
    for _ in range(2):
        assert "Created" in tortoise("makemigrations")
        tortoise("migrate")
        [(id,)] = await rows("SELECT id FROM label")
        ids.append(id)
        assert await rows("SELECT label_id FROM note") == [(1,)] and await rows(foreign_keys) == [(0,)]
    assert ids == sorted(set(ids)) and ids[1] > 2**53


async def main():
    await Tortoise.init(TORTOISE_ORM)
    for trap in (
        an_object_of_bulk_create_is_inserted_again,
        a_db_default_is_forgotten_by_migrations_which_then_replace_the_keys,
    ):
        await trap()
        print(trap.__name__.replace("_", " "))


run_async(main())
