import django.db.models.deletion
from django.db import migrations, models

from declared_keys import GIVE_DEFAULTS


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Customer", [("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")), ("name", models.TextField())]),
        migrations.CreateModel(
            "Invoice",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="shop.customer")),
            ],
        ),
        migrations.RunSQL(GIVE_DEFAULTS),
    ]
