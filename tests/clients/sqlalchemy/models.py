import os

from sqlalchemy import BigInteger, ForeignKey, func, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, server_default=func.snowflake_next_id(monotonic=True)
    )
    name: Mapped[str]


class Photo(Base):
    __tablename__ = "photos"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, server_default=func.snowflake_next_id(monotonic=True)
    )
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    caption: Mapped[str]
    user: Mapped[User] = relationship()
