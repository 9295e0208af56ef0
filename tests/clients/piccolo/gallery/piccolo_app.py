from pathlib import Path

from piccolo.conf.apps import AppConfig, table_finder

APP_CONFIG = AppConfig(
    app_name="gallery",
    migrations_folder_path=str(Path(__file__).parent / "migrations"),
    table_classes=table_finder(modules=["gallery.tables"]),
)
