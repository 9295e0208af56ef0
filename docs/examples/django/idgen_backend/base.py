"""A backend for Django on PostgreSQL whose automatic keys are minted by idgen, also those of packages.

Copy this folder into your project, and set "ENGINE": "idgen_backend" in DATABASES. idgen is in the schema idgen, where
`idgenctl enable` puts it. Tables that exist stay as they are until a migration gives a field another type.

New columns of all integer fields but PositiveSmallIntegerField have 8 bytes. Functions of SQL that take an integer,
such as substr(), take such a column as Cast("column", IntegerField()).
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
    # A cast of another field is to the type that it names: there is none of boolean to bigint.
    cast_data_types = {
        **dict.fromkeys(AUTOMATIC, "bigint"),
        "IntegerField": "integer",
        "SmallIntegerField": "smallint",
    }
    # For a number beyond the range, a filter finds nothing without a query.
    integer_field_ranges = widen(PostgreSQL.ops_class.integer_field_ranges)

    def adapt_integerfield_value(self, value, internal_type):
        # Django would declare 4 bytes, and psycopg then cuts an id to them. With server_side_binding it declares what
        # a number needs, as functions such as substr() want; otherwise only the type of a list counts.
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
    def get_field_type(self, data_type, description):
        if "snowflake_next_id" in (description.default or ""):
            description = description._replace(is_autofield=True)
        return super().get_field_type(data_type, description)

    def get_table_list(self, cursor):
        cursor.execute(
            "SELECT objid::regclass::text FROM pg_depend JOIN pg_extension AS extension ON refobjid = extension.oid "
            "WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_extension'::regclass AND extname = 'idgen'"
        )
        of_idgen = {name for name, in cursor.fetchall()}
        return [table for table in super().get_table_list(cursor) if table.name not in of_idgen]


class DatabaseWrapper(PostgreSQL):
    data_types = widen(PostgreSQL.data_types)
    data_types_suffix = dict.fromkeys(AUTOMATIC, DEFAULT)
    ops_class = Operations
    SchemaEditorClass = SchemaEditor
    introspection_class = Introspection
