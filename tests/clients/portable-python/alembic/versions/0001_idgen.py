import os
from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
SCRIPT = Path(os.environ["IDGEN_SCRIPT"])


def upgrade():
    op.execute("SELECT set_config('idgen.allowed_shards', '0-7', true)")
    op.execute(SCRIPT.read_text())
