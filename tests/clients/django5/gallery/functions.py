from django.db.models import BooleanField, Func


class SnowflakeBetween(Func):
    function = "snowflake_between"
    output_field = BooleanField()
