"""The same site on ids of idgen."""

from settings import *

INSTALLED_APPS += ["wide"]
