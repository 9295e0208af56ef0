"""A backend for Django on PostgreSQL whose automatic keys are minted by idgen, also those of packages.

Copy this folder into your project, and set "ENGINE": "idgen_backend" in DATABASES. idgen is in the schema idgen, where
`idgenctl enable` puts it. Tables that exist stay as they are until a migration gives a field another type.

All integer fields but PositiveSmallIntegerField are a bigint. What PostgreSQL has for integer alone fails, and needs
another expression: Substr("name", Cast("start", PositiveSmallIntegerField())) instead of Substr("name", F("start")),
Case(When(condition, then=1), default=0) instead of Cast(condition, IntegerField()), and a BigIntegerRangeField
instead of an IntegerRangeField that contains an F().
"""

from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL

# This mints for the shard of the setting idgen.shard. Others are idgen.snowflake_next_id(5) and, for scripts that take
# ids for numbers, idgen.snowflake_next_id_js(5).
DEFAULT = "DEFAULT idgen.snowflake_next_id()"

AUTOMATIC = ["AutoField", "BigAutoField", "SmallAutoField"]
# Ids need 8 bytes. A foreign key has the type of the integer field that is as wide as the automatic one, and a generic
# relation may keep ids in any.
WIDE = {
    "AutoField": "BigAutoField",
    "SmallAutoField": "BigAutoField",
    "IntegerField": "BigIntegerField",
    "SmallIntegerField": "BigIntegerField",
    "PositiveIntegerField": "PositiveBigIntegerField",
}


def widen(of_fields):
    return {**of_fields, **{narrow: of_fields[wide] for narrow, wide in WIDE.items()}}


class Operations(PostgreSQL.ops_class):
    cast_data_types = dict.fromkeys(AUTOMATIC, "bigint")
    # For a number beyond the range, a filter finds nothing without a query.
    integer_field_ranges = widen(PostgreSQL.ops_class.integer_field_ranges)

    def adapt_integerfield_value(self, value, internal_type):
        # By the narrower type, a list with ids fails, and with server_side_binding psycopg cuts an id to 4 bytes. With
        # that, psycopg picks the type that a number needs, because functions such as substr() take no bigint.
        if internal_type in WIDE and self.connection.features.uses_server_side_binding:
            return value
        return super().adapt_integerfield_value(value, WIDE.get(internal_type, internal_type))


class SchemaEditor(PostgreSQL.SchemaEditorClass):
    # What Django runs when a field becomes automatic, and when it ceases to be.
    sql_add_identity = f"ALTER TABLE %(table)s ALTER %(column)s SET {DEFAULT}"
    sql_drop_indentity = "ALTER TABLE %(table)s ALTER %(column)s DROP IDENTITY IF EXISTS, ALTER %(column)s DROP DEFAULT"

    def _alter_field(self, model, old_field, new_field, old_type, *rest, **options):
        # A column that is older than this backend may be narrower: then Django widens it, with its foreign keys.
        old, new = old_field.get_internal_type(), new_field.get_internal_type()
        if old in WIDE and old != new:
            old_type = PostgreSQL.data_types[old]
        super()._alter_field(model, old_field, new_field, old_type, *rest, **options)


class Introspection(PostgreSQL.introspection_class):
    ignored_tables = [
        *PostgreSQL.introspection_class.ignored_tables,
        "idgen_columns",
        "idgen_dependents",
        "idgen_refusals",
        "idgen_shard_stats",
        "idgen_status",
        "snowflake_layouts",
    ]

    def get_field_type(self, data_type, description):
        if "snowflake_next_id" in (description.default or ""):
            description = description._replace(is_autofield=True)
        return super().get_field_type(data_type, description)


class DatabaseWrapper(PostgreSQL):
    data_types = widen(PostgreSQL.data_types)
    data_types_suffix = dict.fromkeys(AUTOMATIC, DEFAULT)
    ops_class = Operations
    SchemaEditorClass = SchemaEditor
    introspection_class = Introspection
