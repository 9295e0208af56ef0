import os
import re
from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
PAGE = Path(os.environ["IDGEN_SCRIPT"]).parents[1] / "docs" / "shards.md"
BLOCKS = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def upgrade():
    """The template schema of docs/shards.md and its clones, run from the text of the page."""
    with op.get_context().autocommit_block():
        for begin in ["CREATE SCHEMA template;", "DO $$\nDECLARE\n    template", "CREATE PROCEDURE on_each_shard"]:
            [block] = [block for block in BLOCKS if block.startswith(begin)]
            op.execute(block)
        op.execute("CALL on_each_shard('ALTER TABLE {schema}.users ADD COLUMN email text', 'SELECT WHERE false')")
