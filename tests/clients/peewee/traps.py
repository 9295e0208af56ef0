"""Shows each trap that docs/orm/python.md warns of."""

import subprocess
from pathlib import Path

from peewee import IntegrityError, Model, TextField

from labels import Label
from models import db


def refused(work):
    try:
        work()
    except IntegrityError as error:
        assert 'null value in column "id"' in str(error), error
    else:
        raise RuntimeError("it worked")


def a_big_integer_field_is_sent_as_null_by_bulk_create():
    db.create_tables([Label])
    assert Label.create(name="a").id > 2**53
    refused(lambda: Label.bulk_create([Label(name="b")]))
    db.drop_tables([Label])


def a_big_integer_field_loses_its_default_in_a_migration():
    for command in ("generate labels labels", "up"):
        subprocess.run(["pwmigrate", "models.db", *command.split()], check=True)
    [migration] = Path("migrations").glob("*labels.py")
    assert "id = BigIntegerField(primary_key=True)" in migration.read_text()
    refused(lambda: Label.create(name="a"))


def a_key_that_is_not_declared_is_a_serial_of_four_bytes():
    class Undeclared(Model):
        name = TextField()

        class Meta:
            database = db

    assert '"id" SERIAL' in Undeclared._schema._create_table().query()[0]


for trap in (
    a_big_integer_field_is_sent_as_null_by_bulk_create,
    a_big_integer_field_loses_its_default_in_a_migration,
    a_key_that_is_not_declared_is_a_serial_of_four_bytes,
):
    trap()
    print(trap.__name__.replace("_", " "))
