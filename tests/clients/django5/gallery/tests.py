"""Shows each trap that docs/orm/python.md warns of, and its remedy."""

import json

import django
from django.contrib.auth.models import User as Admin
from django.core.management import call_command
from django.db import DataError, ProgrammingError, connection, migrations, models, transaction
from django.db.models import Func
from django.forms import modelform_factory
from django.test import TestCase, TransactionTestCase
from django.test.utils import isolate_apps
from gallery.fields import SnowflakeField
from gallery.models import Photo, User
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer


class SnowflakeNextId(Func):
    function = "snowflake_next_id"
    output_field = models.BigIntegerField()


def make(model):
    with connection.schema_editor() as editor:
        editor.create_model(model)


@isolate_apps("gallery")
class Traps(TestCase):
    def test_an_identity_takes_no_other_default(self):
        class Label(models.Model):
            id = models.BigAutoField(primary_key=True, db_default=SnowflakeNextId())

        with self.assertRaisesMessage(ProgrammingError, "both default and identity"), transaction.atomic():
            make(Label)

    def test_a_key_with_a_db_default_is_not_taken_for_the_databases(self):
        class Label(models.Model):
            id = models.BigIntegerField(primary_key=True, db_default=SnowflakeNextId())
            name = models.TextField()

        make(Label)
        label = Label.objects.bulk_create([Label(name="a")])[0]
        label.save()
        # Up to Django 5.2 this inserts a second row.
        self.assertEqual(Label.objects.count(), 2 if django.VERSION < (6,) else 1)

        # A form and a serializer ask for the id.
        class LabelSerializer(serializers.ModelSerializer):
            class Meta:
                model = Label
                fields = ["id", "name"]

        self.assertIn("id", modelform_factory(Label, fields="__all__").base_fields)
        self.assertFalse(LabelSerializer(data={"name": "b"}).is_valid())

    def test_a_generic_relation_needs_a_big_integer(self):
        class Tag(models.Model):
            object_id = models.PositiveIntegerField()

        make(Tag)
        user = User.objects.create(name="Ada")
        with self.assertRaisesMessage(DataError, "integer out of range"), transaction.atomic():
            Tag.objects.create(object_id=user.id)

    def test_an_identity_that_is_there_stays(self):
        class Label(models.Model):
            id = models.BigAutoField(primary_key=True)

        make(Label)
        new = SnowflakeField(primary_key=True)
        new.set_attributes_from_name("id")
        new.model = Label
        with connection.schema_editor() as editor:
            editor.alter_field(Label, Label._meta.get_field("id"), new)
        self.assertEqual(Label.objects.create().id, 1)

        operation = migrations.RunSQL(
            "ALTER TABLE gallery_label ALTER id DROP IDENTITY, ALTER id SET DEFAULT snowflake_next_id()"
        )
        with connection.schema_editor() as editor:
            operation.database_forwards("gallery", editor, None, None)
        self.assertGreater(Label.objects.create().id, 2**53)


class PhotoSerializer(serializers.ModelSerializer):
    class Meta:
        model = Photo
        fields = ["id", "user", "caption"]


class ExactPhotoSerializer(PhotoSerializer):
    user = serializers.PrimaryKeyRelatedField(
        queryset=User.objects.all(), pk_field=serializers.BigIntegerField(coerce_to_string=True)
    )


class Cure(TransactionTestCase):
    def test_the_admin_asks_for_no_id(self):
        self.client.force_login(Admin.objects.create_superuser("root"))
        self.assertNotContains(self.client.get("/admin/gallery/user/add/"), 'name="id"')
        self.client.post("/admin/gallery/user/add/", {"name": "Ada"})
        user = User.objects.get()
        self.assertGreater(user.id, 2**53)
        self.client.post(f"/admin/gallery/user/{user.id}/change/", {"name": "Grace"})
        user.refresh_from_db()
        self.assertEqual(user.name, "Grace")

    def test_the_rest_framework_asks_for_no_id(self):
        ada = User.objects.create(name="Ada")
        serializer = PhotoSerializer(data={"user": str(ada.id), "caption": "sunset"})
        serializer.is_valid(raise_exception=True)
        photo = serializer.save()
        self.assertGreater(photo.id, ada.id)
        shown = json.loads(JSONRenderer().render(PhotoSerializer(photo).data))
        self.assertEqual((shown["id"], shown["user"]), (str(photo.id), ada.id), "a foreign key should stay a number")
        shown = json.loads(JSONRenderer().render(ExactPhotoSerializer(photo).data))
        self.assertEqual((shown["id"], shown["user"]), (str(photo.id), str(ada.id)))
        serializer = ExactPhotoSerializer(data={"user": str(ada.id), "caption": "harbour"})
        serializer.is_valid(raise_exception=True)
        self.assertEqual(serializer.save().user, ada)

    def test_fixtures_keep_their_ids(self):
        photo = Photo.objects.create(user=User.objects.create(name="Ada"), caption="sunset")
        call_command("dumpdata", "gallery", output="fixture.json", verbosity=0)
        User.objects.all().delete()
        call_command("loaddata", "fixture.json", verbosity=0)
        self.assertEqual(Photo.objects.get().id, photo.id)
        self.assertGreater(User.objects.create(name="Grace").id, photo.id)
