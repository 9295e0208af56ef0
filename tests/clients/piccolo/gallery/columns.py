from piccolo.columns import BigSerial


class Snowflake(BigSerial):
    """A key whose default is minted by idgen, instead of a sequence."""

    @property
    def column_type(self):
        return "BIGINT"

    def get_sql_value(self, value, delimiter="'"):
        return "snowflake_next_id()"
