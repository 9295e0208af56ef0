from piccolo.columns import ForeignKey, Text
from piccolo.table import Table

from gallery.columns import Snowflake


class Users(Table):
    id = Snowflake(primary_key=True)
    name = Text()


class Photos(Table):
    id = Snowflake(primary_key=True)
    user = ForeignKey(Users)
    caption = Text(unique=True)
