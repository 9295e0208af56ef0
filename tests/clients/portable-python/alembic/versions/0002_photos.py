import sqlalchemy
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    photos = op.create_table(
        "photos",
        sqlalchemy.Column(
            "id", sqlalchemy.BigInteger, server_default=sqlalchemy.text("snowflake_next_id(5)"), primary_key=True
        ),
        sqlalchemy.Column("tag", sqlalchemy.Text),
    )
    op.bulk_insert(photos, [{"tag": "first"}, {"tag": "second"}])
