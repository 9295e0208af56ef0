# Fills the old site through Django's shell: pages whose rich text, blocks and fields lead to other pages and images.
import io

from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from home.models import Article
from PIL import Image as Picture
from wagtail.contrib.redirects.models import Redirect
from wagtail.images.models import Image
from wagtail.models import APIToken, Page, Workflow

admin = User.objects.create_superuser("admin", "admin@example.com", "admin")
drawing = io.BytesIO()
Picture.new("RGB", (400, 300), "green").save(drawing, "PNG")
images = []
for n in range(3):
    image = Image.objects.create(title=f"Old image {n}", file=ContentFile(drawing.getvalue(), f"old{n}.png"))
    image.tags.add("old", f"tag{n}")
    images.append(image)

site = Page.objects.get(depth=2)
before = site
for n in range(20):
    image = images[n % 3]
    article = Article(
        title=f"Old article {n}",
        slug=f"old-{n}",
        owner=admin,
        body=f'<p>Read <a linktype="page" id="{before.pk}">what came before</a> {n}.</p>'
        f'<embed alt="drawn" embedtype="image" format="left" id="{image.pk}"/>',
        blocks=[("page", before), ("image", image)],
        related=before,
        picture=image,
    )
    site.add_child(instance=article)
    article.save_revision(user=admin).publish(user=admin)
    before = article
Redirect.add_redirect("/moved", redirect_to=before)
Workflow.objects.get().start(before, admin)
print(APIToken.create_token(user=admin, name="test")[1])
