import os
from typing import Annotated

from pydantic import PlainSerializer
from sqlalchemy import BigInteger, create_engine, func, make_url
from sqlmodel import Field, SQLModel

engine = create_engine(
    make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
    connect_args={"options": "-c idgen.shard=7"},
)

Id = Annotated[int, PlainSerializer(str, when_used="json-unless-none")]


class User(SQLModel, table=True):
    __tablename__ = "users"

    id: Id | None = Field(
        default=None,
        primary_key=True,
        sa_type=BigInteger,
        sa_column_kwargs={"server_default": func.snowflake_next_id(monotonic=True)},
    )
    name: str


class Photo(SQLModel, table=True):
    __tablename__ = "photos"

    id: Id | None = Field(
        default=None,
        primary_key=True,
        sa_type=BigInteger,
        sa_column_kwargs={"server_default": func.snowflake_next_id(monotonic=True)},
    )
    user_id: Id = Field(foreign_key="users.id", sa_type=BigInteger)
    caption: str = Field(unique=True)
