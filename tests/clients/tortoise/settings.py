import os

TORTOISE_ORM = {
    "connections": {
        "default": {
            "engine": "tortoise.backends.asyncpg",
            "credentials": {
                "host": os.environ["PGHOST"],
                "port": os.environ["PGPORT"],
                "user": os.environ["PGUSER"],
                "password": os.environ["PGPASSWORD"],
                "database": os.environ["PGDATABASE"],
                "server_settings": {"idgen.shard": "7"},
            },
        }
    },
    "apps": {"models": {"models": ["models"], "migrations": "migrations"}},
}
LABELS = TORTOISE_ORM | {"apps": {"labels": {"models": ["labels"], "migrations": "labels_migrations"}}}
