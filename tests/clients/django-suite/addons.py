"""Runs the tests of the add-on in the current folder, with its settings and with the keys that KEYS names."""

import importlib
import os
import sys

# The tests of django-import-export import each other by either name.
sys.path[:0] = [os.getcwd(), os.path.dirname(os.getcwd())]
DATABASES = importlib.import_module(f"settings_{os.environ['KEYS']}").DATABASES

from django.conf import settings

if os.path.exists("runtests.py"):
    import runtests

    settings.configure(**{**runtests.DEFAULT_SETTINGS, "DATABASES": DATABASES})
    runtests.main()
else:
    own = vars(importlib.import_module("settings"))
    names = {name: value for name, value in own.items() if name.isupper()}
    settings.configure(**{**names, "DATABASES": {"default": DATABASES["default"]}, "IMPORT_EXPORT_USE_TRANSACTIONS": True})
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", "test", "--noinput", "core"])
