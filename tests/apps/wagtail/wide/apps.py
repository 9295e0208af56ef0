from django.apps import AppConfig
from django.db.models import AutoField, BigAutoField, BigIntegerField, IntegerField


class WideConfig(AppConfig):
    name = "wide"

    def ready(self):
        AutoField.get_internal_type = BigAutoField.get_internal_type
        IntegerField.get_internal_type = BigIntegerField.get_internal_type
