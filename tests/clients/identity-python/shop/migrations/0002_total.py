from django.db import migrations, models

from declared_keys import GIVE_DEFAULTS


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddField("Invoice", "total", models.DecimalField(max_digits=12, decimal_places=2, default=0)),
        migrations.RunSQL(GIVE_DEFAULTS),
    ]
