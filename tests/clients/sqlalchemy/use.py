"""What an application does: a row, 3000 rows, a page, a range of time."""

from datetime import datetime, timedelta, timezone

from sqlalchemy import create_engine, event, func, select
from sqlalchemy.orm import Session

from models import Photo, User, url

engine = create_engine(url)
statements = []


@event.listens_for(engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, executemany):
    statements.append(statement)


begin = datetime.now(timezone.utc)
with Session(engine) as session:
    ada = User(name="Ada")
    session.add(ada)
    session.flush()
    first = ada.id
    assert 2**53 < first < 2**63, first

    statements.clear()
    photos = [Photo(user=ada, caption=f"photo {n}") for n in range(3000)]
    session.add_all(photos)
    session.flush()
    assert len(statements) == 3, len(statements)    # of 1000 rows each
    ids = [photo.id for photo in photos]
    assert ids == sorted(set(ids)) and ids[0] > first
    captions = {photo.id: photo.caption for photo in photos}
    session.commit()

with Session(engine) as session:
    # Each row has its own id, exact to the last bit.
    assert {photo.id: photo.caption for photo in session.scalars(select(Photo))} == captions
    assert session.scalars(select(Photo.user_id).distinct()).all() == [first]
    assert session.get(Photo, ids[7]).user.name == "Ada"

    pages, last = [], 0
    while page := session.scalars(
        select(Photo).where(Photo.id > last).order_by(Photo.id).limit(700)
    ).all():
        pages.append(page)
        last = page[-1].id
    assert [photo.id for page in pages for photo in page] == ids and len(pages) == 5

    since, until = begin - timedelta(seconds=1), datetime.now(timezone.utc) + timedelta(seconds=3)
    found = session.scalars(
        select(Photo).where(func.snowflake_between(Photo.id, since, until)).order_by(Photo.id)
    )
    assert [photo.id for photo in found] == ids
    before = select(func.count()).where(Photo.id < func.snowflake_min_id(since))
    assert session.scalar(before) == 0
    plan = session.connection().exec_driver_sql(
        "EXPLAIN SELECT * FROM photos WHERE snowflake_between(id, %s, %s)", (since, since)
    )
    assert "Index Cond: ((id >= snowflake_min_id" in "\n".join(row[0] for row in plan)
print("used: a row, 3000 rows in 3 statements, pages, a range of time")
