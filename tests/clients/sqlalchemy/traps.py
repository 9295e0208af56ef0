"""What docs/orm.md warns of, each shown to be so, and its cure."""

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, MetaData, create_engine, event, func, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from defaults import compare_server_default as by_text
from models import Base, Photo, User, url

engine = create_engine(url)
statements = []


@event.listens_for(engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, executemany):
    statements.append(statement)


def a_default_that_is_not_said_to_be_monotonic_takes_a_statement_for_each_row():
    class OtherBase(DeclarativeBase):
        pass

    class Label(OtherBase):
        __tablename__ = "labels"
        id: Mapped[int] = mapped_column(
            BigInteger, primary_key=True, server_default=func.snowflake_next_id()
        )
        name: Mapped[str]

    OtherBase.metadata.create_all(engine)
    with Session(engine) as session:
        statements.clear()
        session.add_all(Label(name=str(n)) for n in range(3000))
        session.flush()
        assert len(statements) == 3000, len(statements)
    OtherBase.metadata.drop_all(engine)


def changes(connection, default, compare):
    """What Alembic would change, and how many ids it has minted to find out."""
    metadata = MetaData()
    for name in "users", "photos":
        table = Base.metadata.tables[name].to_metadata(metadata)
        table.c.id.server_default.arg = default
    last = connection.scalar(text("SELECT snowflake_next_id()"))
    options = {"compare_server_default": compare, "include_name": lambda name, kind, _: name != "alembic_version"}
    found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return len(found), connection.scalar(text("SELECT snowflake_last_id()")) != last


def alembic_takes_another_spelling_for_a_change_and_mints_to_find_out():
    with engine.connect() as connection:
        as_shown, otherwise = text("snowflake_next_id()"), text("idgen.snowflake_next_id()")
        assert changes(connection, as_shown, True) == (0, False)
        assert changes(connection, otherwise, True) == (2, True)
        assert changes(connection, otherwise, by_text) == (0, False)
        assert changes(connection, text("snowflake_next_id(7)"), by_text) == (2, False)


def a_setting_leaks_to_whoever_has_the_connection_next():
    def shard(session):
        return session.scalar(select(func.shard_of(func.snowflake_next_id())))

    pool = create_engine(url, pool_size=1, max_overflow=0)
    with Session(pool) as session:
        session.execute(text("SET idgen.shard = 7"))
        session.commit()
    with Session(pool) as session:
        assert shard(session) == 7, "somebody else's shard"
    pool.dispose()

    # For a transaction.
    with Session(pool) as session:
        session.execute(select(func.set_config("idgen.shard", str(7), True)))
        session.add(User(name="Grace"))
        session.flush()
        assert shard(session) == 7
        session.commit()
    with Session(pool) as session:
        assert shard(session) == 5, "the shard of the database"
    pool.dispose()

    # For all of an engine's connections.
    pool = create_engine(url, connect_args={"options": "-c idgen.shard=7"})
    with Session(pool) as session:
        assert shard(session) == 7
    pool.dispose()


def a_shard_given_as_a_parameter_is_an_integer():
    with Session(engine) as session:
        assert session.scalar(select(func.shard_of(func.snowflake_next_id(9)))) == 9


def a_test_database_comes_from_a_template():
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE sqlalchemy_test TEMPLATE idgen_template"))
    test = create_engine(
        url.set(database="sqlalchemy_test"),
        connect_args={"options": "-c search_path=public,idgen -c idgen.shard=5"},
    )
    Base.metadata.create_all(test)
    with Session(test) as session:
        session.add(Photo(user=User(name="Ada"), caption="sunset"))
        session.commit()
        assert session.scalar(select(func.shard_of(Photo.id))) == 5
    test.dispose()
    with admin.connect() as connection:
        connection.execute(text("DROP DATABASE sqlalchemy_test"))


for trap in (
    a_default_that_is_not_said_to_be_monotonic_takes_a_statement_for_each_row,
    alembic_takes_another_spelling_for_a_change_and_mints_to_find_out,
    a_setting_leaks_to_whoever_has_the_connection_next,
    a_shard_given_as_a_parameter_is_an_integer,
    a_test_database_comes_from_a_template,
):
    trap()
    print(trap.__name__.replace("_", " "))
