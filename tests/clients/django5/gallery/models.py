from django.db import models


class User(models.Model):
    name = models.TextField()


class Photo(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    caption = models.TextField()
