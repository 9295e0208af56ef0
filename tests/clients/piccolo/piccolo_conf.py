import os

from piccolo.conf.apps import AppRegistry
from piccolo.engine.postgres import PostgresEngine

DB = PostgresEngine(config={"dsn": os.environ["DATABASE_URL"], "server_settings": {"idgen.shard": "7"}})
APP_REGISTRY = AppRegistry(apps=["gallery.piccolo_app"])
