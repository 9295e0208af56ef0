"""Django models whose key is a BigAutoField need no change once the database has the default."""

import io
import json
import os
from pathlib import Path

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
)
django.setup()

from declared_keys import shard_of
from django.core.management import call_command
from django.db import connection
from shop.models import Customer, Invoice

call_command("migrate", verbosity=0)
call_command("makemigrations", check_changes=True, dry_run=True)

ada = Customer.objects.create(name="Ada")
assert shard_of(ada.pk) == 5 and Customer.objects.get(pk=ada.pk).name == "Ada"
ada.name = "Ada L."
ada.save()
assert Customer.objects.count() == 1
invoices = Invoice.objects.bulk_create([Invoice(customer=ada) for _ in range(3000)])
assert sorted(i.pk for i in invoices) == sorted(Invoice.objects.values_list("pk", flat=True))
assert len({i.pk for i in invoices}) == 3000 and all(shard_of(i.pk) == 5 for i in invoices)

# A key that the client supplies stays, in a model or a fixture, and the next row gets an id again.
assert Customer.objects.create(pk=7, name="Grace").pk == 7
fixture = Path(os.environ["IDGEN_CLIENT_DIR"], "customers.json")
fixture.write_text(json.dumps([{"model": "shop.customer", "pk": 8, "fields": {"name": "Joan"}}]))
call_command("loaddata", fixture, verbosity=0)
assert Customer.objects.get(pk=8).name == "Joan"
assert shard_of(Customer.objects.create(name="next").pk) == 5

# The command that resets sequences finds none.
statements = io.StringIO()
call_command("sqlsequencereset", "shop", no_color=True, stdout=statements)
with connection.cursor() as cursor:
    cursor.execute(statements.getvalue())
call_command("flush", interactive=False, verbosity=0)
assert shard_of(Customer.objects.create(name="last").pk) == 5
call_command("flush", interactive=False, verbosity=0)
call_command("migrate", "shop", "zero", verbosity=0, fake=True)
with connection.cursor() as cursor:
    cursor.execute("DROP TABLE shop_invoice, shop_customer, django_migrations")
print("Django: ids under models with a BigAutoField")
