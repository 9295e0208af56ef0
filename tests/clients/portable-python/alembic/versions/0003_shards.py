import os
import re
from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
DOCS = Path(os.environ["IDGEN_SCRIPT"]).parents[1] / "docs"
BLOCKS = re.findall(r"^```sql\n(.*?)^```$", (DOCS / "shards.md").read_text(), re.MULTILINE | re.DOTALL)
BLOCKS += [(DOCS / "examples" / name).read_text() for name in ("clone-template.sql", "on-each-shard.sql")]


def upgrade():
    """The template schema of docs/shards.md and its clones, run from its text and its examples."""
    with op.get_context().autocommit_block():
        for begin in ["CREATE SCHEMA template;", "-- Clones the tables", "-- A procedure"]:
            [block] = [block for block in BLOCKS if block.startswith(begin)]
            op.execute(block)
        op.execute("CALL on_each_shard('ALTER TABLE {schema}.users ADD COLUMN email text', 'SELECT WHERE false')")
