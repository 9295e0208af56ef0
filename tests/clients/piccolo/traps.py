"""Shows each trap that docs/orm/python.md warns of."""

import asyncio
import subprocess
from pathlib import Path

from asyncpg import UniqueViolationError
from gallery.tables import Photos, Users
from piccolo.columns import BigInt, Text
from piccolo.table import Table


class Counted(Table):
    id = BigInt(primary_key=True)


class Undeclared(Table):
    name = Text()


async def a_key_of_type_bigint_has_the_default_0():
    await Counted.create_table()
    await Counted().save()
    try:
        await Counted().save()
        raise RuntimeError("the second row was inserted")
    except UniqueViolationError:
        pass
    assert await Counted.select() == [{"id": 0}]


async def a_key_that_is_not_declared_is_a_serial_of_four_bytes():
    assert '"id" SERIAL PRIMARY KEY' in str(Undeclared.create_table())


async def do_nothing_gives_objects_the_ids_of_other_rows():
    ada = await Users.objects().get_or_create(Users.name == "Ada")
    await Photos(user=ada, caption="old").save()
    photos = [Photos(user=ada, caption="old"), Photos(user=ada, caption="added")]
    await Photos.insert(*photos).on_conflict(action="DO NOTHING")
    added = await Photos.objects().get(Photos.caption == "added")
    assert photos[0].id == added.id and not isinstance(photos[1].id, int)


async def a_serial_stays_until_it_is_changed_by_hand():
    tables = Path("gallery/tables.py")
    written = tables.read_text()
    new = "\n\nclass Labels(Table):\n    id = {}(primary_key=True)\n    name = Text()\n"

    def migrate(column):
        tables.write_text(written.replace("import ForeignKey", "import BigSerial, ForeignKey") + new.format(column))
        for command in ("new gallery --auto", "forwards gallery"):
            subprocess.run(["piccolo", "migrations", *command.split()], check=True, stdout=subprocess.DEVNULL)

    async def id():
        return (await Users.raw("INSERT INTO labels (name) VALUES ('a') RETURNING id"))[0]["id"]

    migrate("BigSerial")
    assert await id() == 1
    migrate("Snowflake")
    assert await id() == 2
    await Users.raw("ALTER TABLE labels ALTER id SET DEFAULT snowflake_next_id()")
    assert await id() > 2**53
    tables.write_text(written)


async def main():
    for trap in (
        a_key_of_type_bigint_has_the_default_0,
        a_key_that_is_not_declared_is_a_serial_of_four_bytes,
        do_nothing_gives_objects_the_ids_of_other_rows,
        a_serial_stays_until_it_is_changed_by_hand,
    ):
        await trap()
        print(trap.__name__.replace("_", " "))


asyncio.run(main())
