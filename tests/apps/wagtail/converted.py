"""The same site on ids of idgen."""

from settings import *

DATABASES["default"]["ENGINE"] = "idgen_backend"
