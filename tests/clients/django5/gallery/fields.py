from django.db.models import BigAutoField


class SnowflakeField(BigAutoField):
    """A key whose default is minted by idgen, instead of an identity."""

    def db_type_suffix(self, connection):
        return "DEFAULT snowflake_next_id()"
