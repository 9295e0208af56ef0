from piccolo.columns import BigSerial


class Snowflake(BigSerial):
    @property
    def column_type(self):
        return "BIGINT"

    def get_sql_value(self, value, delimiter="'"):
        return "snowflake_next_id()"
