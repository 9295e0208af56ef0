import os

DATABASES = {
    "default": {
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "ENGINE": "idgen_backend",
        "OPTIONS": {"options": "-c search_path=public,idgen -c idgen.shard=5"},
        "TEST": {"TEMPLATE": "idgen_template"},
    }
}
# Here, numbers are sent separately from the statement, with a type.
DATABASES["binding"] = {
    **DATABASES["default"],
    "OPTIONS": {"options": "-c search_path=public,idgen -c idgen.shard=5", "server_side_binding": True},
    "TEST": {"MIRROR": "default"},
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "rest_framework",
    "gallery",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REST_FRAMEWORK = {"COERCE_BIGINT_TO_STRING": True}

SECRET_KEY = "of a test"
ROOT_URLCONF = "urls"
USE_TZ = True
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
