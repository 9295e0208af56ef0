"""What an application does, and the traps that docs/orm/python.md warns of."""

from datetime import datetime, timedelta, timezone

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DataError
from sqlmodel import Field, Session, SQLModel, func, select

from models import Photo, User, engine

SQLModel.metadata.create_all(engine)
statements = []


@event.listens_for(engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, executemany):
    statements.append(statement)


with engine.connect() as connection:
    migration = MigrationContext.configure(connection, opts={"compare_server_default": True})
    assert compare_metadata(migration, SQLModel.metadata) == []

begin = datetime.now(timezone.utc)
with Session(engine) as session:
    ada = User(name="Ada")
    session.add(ada)
    session.flush()
    assert 2**53 < ada.id < 2**63 and ada.id >> 10 & 8191 == 7
    statements.clear()
    photos = [Photo(user_id=ada.id, caption=f"photo {n}") for n in range(3000)]
    session.add_all(photos)
    session.flush()
    assert len(statements) == 3, len(statements)
    ids = [photo.id for photo in photos]
    assert ids == sorted(set(ids)) and ids[0] > ada.id

    since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
    found = select(Photo.id).where(func.snowflake_between(Photo.id, since, until)).order_by(Photo.id)
    assert session.exec(found).all() == ids

    again = insert(Photo).values(user_id=ada.id, caption="photo 0")
    upsert = again.on_conflict_do_update(index_elements=["caption"], set_={"user_id": ada.id}).returning(Photo.id)
    assert session.exec(upsert).scalar_one() == ids[0]
    session.commit()


class Label(SQLModel, table=True):
    id: int | None = Field(
        default=None, primary_key=True, sa_column_kwargs={"server_default": func.snowflake_next_id()})


class Note(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    user_id: int = Field(foreign_key="users.id")


# Without sa_type, keys and foreign keys have four bytes, and a key without a default is a serial.
SQLModel.metadata.create_all(engine)
with Session(engine) as session:
    types = "SELECT attrelid::regclass::text, attname::text, format_type(atttypid, NULL) FROM pg_attribute "
    types += "WHERE attrelid IN ('label'::regclass, 'note'::regclass) AND attnum > 0 ORDER BY 1, 2"
    assert session.execute(text(types)).all() == [
        ("label", "id", "integer"), ("note", "id", "integer"), ("note", "user_id", "integer")]
    ada = session.exec(select(User)).one()
    for row in (Label(), Note(user_id=ada.id)):
        try:
            with session.begin_nested():
                session.add(row)
            raise RuntimeError("it was inserted")
        except DataError as error:
            assert error.orig.sqlstate == "22003", error
print("used: a row, 3000 rows in 3 statements, a range of time, an upsert, and keys of four bytes")
