"""The converted site with one more application, whose tables refer to pages."""

from converted import *

INSTALLED_APPS += ["wagtail.contrib.search_promotions"]
