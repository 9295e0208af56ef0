import os

from peewee import BigAutoField, ForeignKeyField, Model, PostgresqlDatabase, TextField

db = PostgresqlDatabase(os.environ["PGDATABASE"], options="-c idgen.shard=7")


class SnowflakeField(BigAutoField):
    field_type = "BIGINT DEFAULT snowflake_next_id()"


class Base(Model):
    id = SnowflakeField()

    class Meta:
        database = db


class User(Base):
    name = TextField()

    class Meta:
        table_name = "users"


class Photo(Base):
    user = ForeignKeyField(User)
    caption = TextField(unique=True)

    class Meta:
        table_name = "photos"
