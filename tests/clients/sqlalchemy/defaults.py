def compare_server_default(context, column, model_column, default, model_default, rendered):
    if default and "snowflake_next_id" in default and rendered:
        return default.removeprefix("idgen.") != rendered.removeprefix("idgen.")
    return None    # as Alembic compares the others
