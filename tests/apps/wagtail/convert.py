"""Converts a Wagtail site by the page's own blocks while a client works, and then uses it through its API and in a
browser."""

import os
import re
import socket
import subprocess
from collections import Counter
from itertools import count
from pathlib import Path

import requests
from admin import Editor
from app import Client, psql, rows, step, value, wait_for
from PIL import Image
from selenium.webdriver.common.by import By

WORKERS = 2
DEFAULTS = "set_defaults(5, 'snowflake_next_id_js')"  # Wagtail's scripts take ids for numbers
ARTICLES = "wagtailcore_page JOIN home_article ON page_ptr_id = id"


def django(*command, **options):
    return subprocess.run(["python", "-m", "django", *command], check=True, text=True, **options)


class Site:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{self.address}"

    def start(self, settings):
        os.environ["DJANGO_SETTINGS_MODULE"] = settings
        program = ["gunicorn", "--no-control-socket", f"--workers={WORKERS}", f"--bind={self.address}"]
        with open("log", "a") as log:
            self.process = subprocess.Popen(
                [*program, "django.core.wsgi:get_wsgi_application()"], stdout=log, stderr=log
            )
        wait_for("the site", lambda: self.process.poll() is not None or self.answers())
        assert self.process.poll() is None, Path("log").read_text()

    def answers(self):
        try:
            return requests.get(self.url + "/admin/login/").ok
        except requests.ConnectionError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Api:
    def __init__(self, url, token):
        self.url = url + "/api/v3/"
        self.headers = {"Authorization": f"Bearer {token}"}

    def ask(self, method, path, **options):
        answer = requests.request(method, self.url + path, headers=self.headers, timeout=300, **options)
        assert answer.ok, f"{answer.status_code} {answer.text[-500:]}"
        return answer.json()

    def create(self, title, parent, to):
        """Creates a page whose body and block link to another page, and returns its id."""
        meta = {"type": "home.Article", "parent_id": int(parent), "action": "publish"}
        body = f'<p><a linktype="page" id="{to}">There</a></p>'
        blocks = [{"type": "page", "value": int(to)}]
        page = {"meta": meta, "title": title, "body": body, "blocks": blocks}
        return str(self.ask("POST", "pages/", json=page)["id"])

    def read(self, id):
        return self.ask("GET", f"pages/{id}/")


def home():
    return value("SELECT id FROM wagtailcore_page WHERE slug = 'home'")


def leads_to(id):
    """Returns the stored ids of the pages to which the body and the blocks of a page link."""
    body = value(f"SELECT body FROM home_article WHERE page_ptr_id = {id}")
    block = value(
        "SELECT max(block ->> 'value') FROM home_article, jsonb_array_elements(blocks) AS block "
        f"WHERE page_ptr_id = {id} AND block ->> 'type' = 'page'"
    )
    return re.findall('id="([0-9]+)"', re.sub("<embed[^>]*>", "", body)) + [block]


def shown_links(url, id):
    """Returns the addresses to which the article links, as visitors see it."""
    path = value(f"SELECT substr(url_path, 6) FROM wagtailcore_page WHERE id = {id}")
    answer = requests.get(url + path)
    assert answer.ok, f"{path}: {answer.status_code}"
    return re.findall('href="([^"]*)"', answer.text)


def is_new_id(id):
    return 2**32 < int(id) < 2**53 and value(f"SELECT shard FROM snowflake_decode({id}, 'js53')") == "5"


def draw(color):
    """Draws a picture, and returns its path."""
    path = Path(f"{color}.png").absolute()
    Image.new("RGB", (400, 300), color).save(path)
    return path


def old_site(site):
    """Creates the site with its old keys, fills and starts it, and returns its API."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    django("makemigrations", "-v0", "home")
    django("migrate", "-v0")
    with open("fill.py") as program:
        token = django("shell", "-v0", stdin=program, stdout=subprocess.PIPE).stdout.strip()
    site.start("settings")
    return Api(site.url, token)


def convert(site, api):
    """Runs the steps of the page while a client works."""
    numbers, leads = count(), {}

    def create():
        to = client.created[-1] if client.created else home()
        id = api.create(f"By the client {next(numbers)}", home(), to)
        leads[id] = int(to)
        return id

    def read(id):
        page = api.read(id)
        assert page["blocks"][0]["value"] == leads[id], f"{page} does not lead to {leads[id]}"
        return str(page["id"])

    old = rows(f"SELECT id FROM {ARTICLES}")
    before = {id: (leads_to(id), shown_links(site.url, id)) for id in old}
    assert all(len(shown) == 3 for _, shown in before.values()), before

    client = Client(create, read)
    client.start()
    client.enter("the old site")
    step("1. Find the columns")
    step("2. See what is in the way")
    client.enter("the change of types")
    step("3. Change the types")
    client.enter("before the restart")
    client.phase = "the restart"
    site.stop()
    site.start("converted")
    client.enter("after the restart")
    client.enter("the change of defaults")
    assert max(map(int, client.created)) < 2**31
    step("5. Set the defaults", DEFAULTS)
    client.enter("ids")
    step("6. Check")
    client.finish()

    print(len(client.created), "pages by the client, and these failures:", Counter(client.failures))
    for phase, error in client.failures:
        assert phase in ("before the restart", "the restart") and error.startswith("ConnectionError"), error
    assert is_new_id(client.created[-1])
    assert value("SELECT count(*) FROM information_schema.columns WHERE is_identity = 'YES'") == "0"
    for id, was in before.items():
        assert (leads_to(id), shown_links(site.url, id)) == was
    moved = requests.get(site.url + "/moved", allow_redirects=False).headers["Location"]
    assert moved == before[old[-1]][1][0].replace("18", "19"), moved
    return old


def use_api(api):
    """Uses the API, and returns a page, its child and an image."""
    parent = api.create("Alpha", home(), home())
    child = api.create("Beta", parent, parent)
    page = api.read(child)
    assert is_new_id(child) and page["meta"]["parent"]["id"] == page["blocks"][0]["value"] == int(parent)
    assert leads_to(child) == [parent, parent]
    for query in "search=Beta", f"child_of={parent}", f"descendant_of={parent}", f"id={child}":
        assert [item["id"] for item in api.ask("GET", f"pages/?{query}")["items"]] == [int(child)], query
    revision = api.ask("GET", f"pages/{child}/revisions/")["items"][0]
    assert is_new_id(str(revision["id"])) and revision["object_id"] == child
    assert api.ask("GET", f"pages/{child}/revisions/{revision['id']}/")["content_object"]["id"] == int(child)
    changed = api.ask("PATCH", f"pages/{child}/", json={"title": "Gamma", "meta": {"action": "publish"}})
    assert (changed["id"], changed["title"]) == (int(child), "Gamma")

    with draw("red").open("rb") as file:
        image = api.ask("POST", "images/", files={"file": file}, data={"title": "Delta"})
    assert is_new_id(str(image["id"])) and api.ask("GET", f"images/{image['id']}/")["title"] == "Delta"
    tag = f"from wagtail.images.models import Image; Image.objects.get(id={image['id']}).tags.add('greek')"
    django("shell", "-v0", "-c", tag)
    assert value(f"SELECT count(*) FROM taggit_taggeditem WHERE object_id = {image['id']}") == "1"
    return parent, child, image["id"]


def use_admin(editor, old, parent, child, tagged):
    """Has an editor write, change, find, copy and move pages, and upload images."""

    # Wagtail's scripts save a page as a draft again and again before it is published.
    editor.open(f"/admin/pages/add/home/article/{parent}/")
    editor.type("#id_title", "Epsilon")
    editor.write("Hello")
    editor.link_to(child)
    editor.click("#panel-child-content-blocks-section .c-sf-add-button")
    editor.click("[role=option]", "Page")
    editor.click("#panel-child-content-blocks-section [data-chooser-action-choose]")
    editor.choose_page(child)
    editor.click("#panel-child-content-related-section [data-chooser-action-choose]")
    editor.choose_page(parent)
    editor.click("#panel-child-content-picture-section [data-chooser-action-choose]")
    editor.click(".modal [role=tab]", "Upload")
    editor.type("#id_image-chooser-upload-title", "Zeta")
    editor.upload("#id_image-chooser-upload-file", str(draw("blue")))
    editor.click(".modal #tab-upload button[type=submit]")
    editor.leave_dialog()
    page = value(f"SELECT id FROM {ARTICLES} WHERE title = 'Epsilon'")
    draft = f"SELECT max(created_at) FROM wagtailcore_revision WHERE object_id = '{page}'"
    for text in " you", " there":
        last = value(draft)
        editor.write(text)
        editor.until("a draft", lambda: value(draft) > last)
    editor.publish()
    image = value("SELECT id FROM wagtailimages_image WHERE title = 'Zeta'")
    assert is_new_id(page) and is_new_id(image)
    columns = value(f"SELECT concat_ws(' ', related_id, picture_id) FROM {ARTICLES} WHERE id = {page}")
    assert leads_to(page) == [child, child] and columns == f"{parent} {image}", (leads_to(page), columns)

    # Pages that already have links, to new ids and to old numbers.
    for id in page, *old[-3:-1]:
        before = leads_to(id)
        editor.open(f"/admin/pages/{id}/edit/")
        editor.write("more")
        editor.publish()
        assert leads_to(id) == before, (leads_to(id), before)
        assert "more" in value(f"SELECT body FROM home_article WHERE page_ptr_id = {id}")
    editor.open(f"/admin/pages/{old[0]}/edit/")
    editor.link_to(page)
    editor.publish()
    assert leads_to(old[0])[0] == page

    # From page to page in the menu.
    editor.open("/admin/")
    editor.click("nav button", "Pages")
    for id in home(), parent:
        editor.click(f".c-page-explorer__item__action[href='/admin/pages/{id}/']")
    editor.click(f".c-page-explorer__item__link[href^='/admin/pages/{page}/']")
    editor.see("h1, h2", "Epsilon")

    editor.open("/admin/pages/search/")
    editor.type("#id_q", "Epsilon")
    editor.click(f"td a[href='/admin/pages/{page}/edit/']")
    editor.see("#id_title")

    editor.open(f"/admin/pages/{page}/copy/")
    editor.type("#id_new_title", "Eta")
    editor.type("#id_new_slug", "eta")
    editor.click("input[type=submit]")
    editor.see(".messages", "copied")
    copy = value(f"SELECT id FROM {ARTICLES} WHERE title = 'Eta'")
    assert is_new_id(copy) and leads_to(copy) == leads_to(page)

    editor.open(f"/admin/pages/{copy}/move/")
    editor.click("[aria-describedby=id_new_parent_page-title]")
    editor.click("[data-chooser-action-choose]")
    editor.choose_page(child)
    editor.click("input[type=submit]")
    editor.click("input[type=submit]", "")
    editor.see(".messages", "moved")
    of_child = value(f"SELECT path FROM wagtailcore_page WHERE id = {child}")
    assert value(f"SELECT path FROM wagtailcore_page WHERE id = {copy}").startswith(of_child)

    # The start page finds pages by ids that workflows keep as text.
    editor.open(f"/admin/pages/{copy}/edit/")
    editor.submit()
    editor.open("/admin/")
    for id in copy, old[-1]:
        editor.see(f"#home-panels a[href*='/pages/{id}/'], main a[href*='/pages/{id}/']")

    editor.open("/admin/images/?tag=greek")
    editor.see(f"main a[href^='/admin/images/{tagged}/']")


def migrate_later():
    """Adds an application of Wagtail, whose tables refer to pages, and which needs no conversion."""
    minting = "SELECT count(*) FROM idgen.idgen_columns"
    before = int(value(minting))
    django("migrate", "-v0", "--settings=later")
    assert int(value(minting)) > before
    assert value("SELECT count(*) FROM information_schema.columns WHERE is_identity = 'YES'") == "0"
    step("1. Find the columns")
    step("6. Check")


def round_ids(api, editor):
    """Shows why this test does not use the default that the page sets."""
    psql("ALTER TABLE wagtailcore_page ALTER id SET DEFAULT snowflake_next_id(5)")
    ids = (api.create(f"Theta {n}", home(), home()) for n in count())
    to = next(id for id in ids if int(float(id)) != int(id))
    editor.open(f"/admin/pages/{api.create('Iota', home(), to)}/edit/")
    field = editor.until("a block", lambda: editor.browser.find_elements(By.NAME, "blocks-0-value"))[0]
    chosen = field.get_attribute("value")
    assert float(chosen) == float(to) and chosen != to, "Wagtail keeps ids: the pages need not say otherwise"


if __name__ == "__main__":
    site = Site()
    api = old_site(site)
    try:
        old = convert(site, api)
        django("makemigrations", "--check", "--dry-run")
        made = use_api(api)
        editor = Editor(site.url)
        use_admin(editor, old, *made)
        migrate_later()
        round_ids(api, editor)
        editor.browser.quit()
    finally:
        site.stop()
