from django.contrib import admin

from gallery.models import Photo, User

admin.site.register([User, Photo])
