"""Adapts docs/examples/declared-keys.sql, which gives declared keys a default, to the schema public."""

import os
from pathlib import Path

statement = Path(os.environ["DECLARED_KEYS"]).read_text()
assert statement.count("'shop'") == 1
GIVE_DEFAULTS = statement.replace("'shop'", "'public'")


def shard_of(id):
    return id >> 10 & 8191
