import os
from pathlib import Path

from django.db import migrations

SCRIPT = Path(os.environ["IDGEN_SCRIPT"])


class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL("SELECT set_config('idgen.allowed_shards', '0-7', true)"),
        migrations.RunSQL(SCRIPT.read_text()),
    ]
