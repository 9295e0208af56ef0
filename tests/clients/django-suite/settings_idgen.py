from settings_plain import *

for name, database in DATABASES.items():
    database["ENGINE"] = "idgen_backend"
    database["OPTIONS"] = {"options": "-c search_path=public,idgen -c idgen.shard=5"}
    database["TEST"] = {"NAME": f"idgen_{name}", "TEMPLATE": "django_idgen"}
