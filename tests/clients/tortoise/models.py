from tortoise import fields
from tortoise.models import Model


class SnowflakeField(fields.BigIntField):
    class _db_postgres:
        GENERATED_SQL = "BIGINT NOT NULL PRIMARY KEY DEFAULT snowflake_next_id()"


class User(Model):
    id = SnowflakeField(primary_key=True)
    name = fields.TextField()


class Photo(Model):
    id = SnowflakeField(primary_key=True)
    user = fields.ForeignKeyField("models.User", related_name="photos")
    caption = fields.CharField(100, unique=True)
