from datetime import datetime, timedelta, timezone

from django.db import connection
from django.test.utils import CaptureQueriesContext
from gallery.functions import SnowflakeBetween
from gallery.models import Photo, User

begin = datetime.now(timezone.utc)
ada = User.objects.create(name="Ada")
with CaptureQueriesContext(connection) as queries:
    photos = Photo.objects.bulk_create(Photo(user=ada, caption=f"photo {n}") for n in range(3000))

assert sum(query["sql"].startswith("INSERT") for query in queries) == 1, queries.captured_queries
ids = [photo.id for photo in photos]
assert ids == sorted(set(ids)) and 2**53 < ada.id < ids[0]
assert dict(Photo.objects.values_list("id", "caption")) == {p.id: p.caption for p in photos}
assert Photo.objects.get(pk=ids[7]).user == ada

page = Photo.objects.filter(pk__gt=ids[499]).order_by("pk")[:100]
assert [photo.id for photo in page] == ids[500:600]

since, until = begin - timedelta(seconds=1), begin + timedelta(hours=1)
found = Photo.objects.filter(SnowflakeBetween("pk", since, until))
assert found.count() == 3000
assert "Index Cond" in Photo.objects.filter(SnowflakeBetween("pk", since, since)).explain()

with connection.cursor() as cursor:
    cursor.execute("SELECT pg_typeof(user_id)::text FROM gallery_photo LIMIT 1")
    assert cursor.fetchone() == ("bigint",)

# Saving a row again updates it and inserts no other.
photos[0].caption = "sunset"
photos[0].save()
assert Photo.objects.count() == 3000
print("used: a row, 3000 rows in a statement, a page, a range of time")
