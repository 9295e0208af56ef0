"""What docs/orm/python.md warns against."""

from tortoise import fields
from tortoise.fields.db_defaults import SqlDefault
from tortoise.models import Model


class Label(Model):
    id = fields.BigIntField(primary_key=True, generated=False, db_default=SqlDefault("snowflake_next_id()"))
    name = fields.TextField()


class Note(Model):
    id = fields.BigIntField(primary_key=True, generated=False, db_default=SqlDefault("snowflake_next_id()"))
    label = fields.ForeignKeyField("labels.Label")
