from django.conf import settings
from django.contrib import admin
from django.contrib.staticfiles.views import serve as serve_static
from django.urls import include, path
from django.views.static import serve
from wagtail import urls as wagtail_urls
from wagtail.admin import urls as wagtailadmin_urls
from wagtail.api.v3.urls import api

urlpatterns = [
    path("django-admin/", admin.site.urls),
    path("admin/", include(wagtailadmin_urls)),
    path("api/v3/", api.urls),
    path("static/<path:path>", serve_static, {"insecure": True}),
    path("media/<path:path>", serve, {"document_root": settings.MEDIA_ROOT}),
    path("", include(wagtail_urls)),
]
