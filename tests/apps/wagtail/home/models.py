from django.db import models
from wagtail.api.conf import APIField
from wagtail.blocks import PageChooserBlock, RichTextBlock
from wagtail.fields import RichTextField, StreamField
from wagtail.images.blocks import ImageChooserBlock
from wagtail.models import Page
from wagtail.search import index


class Article(Page):
    body = RichTextField(blank=True)
    blocks = StreamField(
        [("page", PageChooserBlock()), ("image", ImageChooserBlock()), ("text", RichTextBlock())], blank=True
    )
    related = models.ForeignKey(Page, models.SET_NULL, null=True, blank=True, related_name="+")
    picture = models.ForeignKey("wagtailimages.Image", models.SET_NULL, null=True, blank=True, related_name="+")

    content_panels = Page.content_panels + ["body", "blocks", "related", "picture"]
    search_fields = Page.search_fields + [index.SearchField("body")]
    api_fields = [APIField(name, writable=True) for name in ("body", "blocks", "related", "picture")]
