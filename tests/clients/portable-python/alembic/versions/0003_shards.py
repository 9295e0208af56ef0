import os
import re
from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
DOCS = Path(os.environ["IDGEN_SCRIPT"]).parents[1] / "docs"
BLOCKS = re.findall(r"^```sql\n(.*?)^```$", (DOCS / "shards.md").read_text(), re.MULTILINE | re.DOTALL)
BLOCKS.append((DOCS / "examples" / "clone-template.sql").read_text())


def upgrade():
    """The template schema of docs/shards.md and its clones, run from its text and its example."""
    with op.get_context().autocommit_block():
        for begin in ["CREATE SCHEMA template;", "-- Clones the tables", "CREATE PROCEDURE on_each_shard"]:
            [block] = [block for block in BLOCKS if block.startswith(begin)]
            op.execute(block)
        op.execute("CALL on_each_shard('ALTER TABLE {schema}.users ADD COLUMN email text', 'SELECT WHERE false')")
