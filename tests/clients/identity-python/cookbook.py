"""Adapts to the schema public the statement of docs/cookbook.md that gives declared keys a default."""

import os
import re
from pathlib import Path

[block] = re.findall(
    r"^## Keys that an ORM declares\n.*?^(DO \$\$\n.*?^\$\$;)$",
    Path(os.environ["COOKBOOK"]).read_text(),
    re.MULTILINE | re.DOTALL,
)
assert block.count("'shop'") == 1
GIVE_DEFAULTS = block.replace("'shop'", "'public'")


def shard_of(id):
    return id >> 10 & 8191
