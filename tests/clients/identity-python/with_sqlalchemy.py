"""SQLAlchemy models whose key is an identity or a serial column need no change once the database has the default, and
Alembic finds nothing to do."""

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from declared_keys import GIVE_DEFAULTS, shard_of


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    name: Mapped[str]


class Invoice(Base):
    __tablename__ = "invoice"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id"))


engine = sa.create_engine("postgresql+psycopg://")
Base.metadata.create_all(engine)
with engine.begin() as connection:
    connection.exec_driver_sql(GIVE_DEFAULTS)
    connection.exec_driver_sql(GIVE_DEFAULTS)
    changes = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert changes == [], changes

with Session(engine) as session:
    ada = Customer(name="Ada")
    session.add(ada)
    session.flush()
    session.add_all(Invoice(customer_id=ada.id) for _ in range(3000))
    session.add(Customer(id=7, name="Grace"))
    session.commit()
    ids = session.scalars(sa.select(Invoice.id)).all()
    assert len(ids) == 3000 and all(shard_of(id) == 5 for id in [*ids, ada.id])
    assert session.get(Customer, 7).name == "Grace"
Base.metadata.drop_all(engine)
print("SQLAlchemy: ids under models with an identity and a serial key")
