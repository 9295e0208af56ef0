"""Inserts 3000 rows with SQLAlchemy 2.0: counts the statements of each way, and checks that each row has its id."""

import os

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, create_engine, event, func, make_url, select, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, orm_insert_sentinel
from sqlalchemy.schema import CreateColumn

engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"))
statements = []


@event.listens_for(engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, executemany):
    statements.append(statement)


# Only the database has the default.
class Base(DeclarativeBase):
    pass


class LeftOut(Base):
    __tablename__ = "left_out"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str]


@compiles(CreateColumn, "postgresql")
def create_column(element, compiler, **options):
    column = compiler.visit_create_column(element, **options)
    return column and column.replace("BIGSERIAL", "BIGINT DEFAULT snowflake_next_id()")


# An additional column, by which SQLAlchemy recognizes the rows.
class WithSentinel(Base):
    __tablename__ = "with_sentinel"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, server_default=text("snowflake_next_id()")
    )
    name: Mapped[str]
    sentinel: Mapped[int] = orm_insert_sentinel()


# The application first asks for as many ids as there are rows, in the same transaction.
def next_id(context):
    if not hasattr(context, "ids"):
        ids = func.snowflake_next_ids(5, len(context.compiled_parameters))
        context.ids = context.connection.scalars(select(ids))
    return next(context.ids)


class AskedFor(Base):
    __tablename__ = "asked_for"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, default=next_id, server_default=text("snowflake_next_id()")
    )
    name: Mapped[str]


# Without any of these.
class Plain(Base):
    __tablename__ = "plain"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, server_default=text("snowflake_next_id()")
    )
    name: Mapped[str]


Base.metadata.create_all(engine)
for model, expected in ((Plain, 3000), (LeftOut, 3), (WithSentinel, 3), (AskedFor, 4)):
    with Session(engine, expire_on_commit=False) as session:
        session.execute(text("SELECT 1"))
        statements.clear()
        rows = [model(name=str(n)) for n in range(3000)]
        session.add_all(rows)
        session.flush()
        assert len(statements) == expected, (model, len(statements))
        ids = [row.id for row in rows]
        session.commit()
        assert ids == sorted(set(ids)) and ids[0] > 2**53
        found = session.execute(select(model.id, model.name, func.shard_of(model.id)).order_by(model.id))
        assert [tuple(row) for row in found] == [(row.id, row.name, 5) for row in rows]
        session.add(one := model(name="one"))
        session.flush()
        assert one.id > ids[-1]
    print(model.__tablename__.replace("_", " "), f"{expected} statements")

# Alembic sees none of them as a change.
with engine.connect() as connection:
    default = connection.scalar(text("""
        SELECT column_default FROM information_schema.columns
        WHERE table_name = 'left_out' AND column_name = 'id'"""))
    assert default == "snowflake_next_id()", default
    context = MigrationContext.configure(connection, opts={"compare_server_default": True})
    assert compare_metadata(context, Base.metadata) == []
