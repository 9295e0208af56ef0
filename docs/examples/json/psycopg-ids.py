# How psycopg handles 64-bit ids; see docs/json.md. PGHOST, PGUSER and the like say where to connect:
#     pip install "psycopg[binary]" && python psycopg-ids.py
import json
import platform

import psycopg

ID = 499440859704464385
print(f"Python {platform.python_version()}, psycopg {psycopg.__version__}")


def show(what, value):
    print(f"{what:46} {value}")


with psycopg.connect() as connection:
    def value(sql):
        return connection.execute(sql, [ID]).fetchone()[0]

    # A Python int has no limit: columns, parameters, arrays and json are exact.
    show("bigint", value("SELECT %s::bigint"))
    assert value("SELECT %s::bigint") == ID
    assert value("SELECT ARRAY[%s::bigint]") == [ID]
    show("json_build_object('id', id)", value("SELECT json_build_object('id', %s::bigint)"))
    assert value("SELECT json_build_object('id', %s::bigint)") == {"id": ID}
    assert value("SELECT jsonb_build_object('id', %s::bigint)") == {"id": ID}

# What Python then writes is a number again, so a browser rounds it. Send text.
show("json.dumps({'id': id})", json.dumps({"id": ID}))
show("json.dumps({'id': str(id)})", json.dumps({"id": str(ID)}))
# A float on the way, as some libraries for tables make of a column with nulls, rounds it too.
assert int(float(ID)) != ID
