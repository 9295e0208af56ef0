"""What docs/orm/python.md warns against."""

from peewee import SQL, BigIntegerField, Model, TextField

from models import db


class Label(Model):
    id = BigIntegerField(primary_key=True, constraints=[SQL("DEFAULT snowflake_next_id()")])
    name = TextField()

    class Meta:
        database = db
        table_name = "labels"
