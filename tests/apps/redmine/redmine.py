"""Fills Redmine with old rows, converts it by the blocks of docs/coming-from.md while a client works, and uses it."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import app

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ["IDGEN_CLIENT_DIR"], "unpacked/usr/share/redmine")
INSTANCE = ROOT / "instances/default"  # where Debian's Redmine keeps all that is not code
PID_FILE = INSTANCE / "tmp/puma.pid"
SERVER_LOG = INSTANCE / "log/puma.log"
WORKERS = 2
PASSWORD = secrets.token_hex(8)


def set_up():
    """Writes Redmine's configuration for this database."""
    for file in ("config/database.yml", "Gemfile.lock", "instances"):
        (ROOT / file).unlink()  # links to folders of the system
    for folder in ("config", "files", "log", "tmp"):
        (INSTANCE / folder).mkdir(parents=True)
    (ROOT / "Gemfile.local").write_text('gem "pg"\ngem "puma"\n')
    (INSTANCE / "config/secret_key.txt").write_text(secrets.token_hex(64))
    (INSTANCE / "config/database.yml").write_text(
        f"production:\n  adapter: postgresql\n  url: {os.environ['DATABASE_URL']}\n"
    )
    os.environ["RAILS_ENV"] = "production"


def rails(*command):
    """Runs a command of Redmine's programs, and returns its output."""
    done = subprocess.run(["bundle", "exec", *command], cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def fill():
    """Creates Redmine's tables and rows, and returns the API key of its administrator."""
    os.environ.update(SCHEMA="/dev/null", REDMINE_LANG="en", REDMINE_PASSWORD=PASSWORD)
    rails("rake", "db:migrate")
    rails("rake", "redmine:load_default_data")
    return rails("rails", "runner", str(HERE / "fill.rb")).split()[-1]


def booted():
    return len(re.findall(r"Worker \d+ \(PID: \d+\) booted", SERVER_LOG.read_text()))


def start(port):
    # A worker has one thread, and so one connection to the database.
    command = f"bundle exec puma -e production -b tcp://127.0.0.1:{port} -w {WORKERS} -t 1:1 --pidfile {PID_FILE}"
    with SERVER_LOG.open("w") as log:
        subprocess.Popen(command.split(), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    app.wait_for("Redmine", lambda: booted() == WORKERS)


def restart():
    """Restarts all processes. The new ones take over the port, so no request is refused."""
    before = booted()
    os.kill(int(PID_FILE.read_text()), signal.SIGUSR2)
    app.wait_for("Redmine's restart", lambda: booted() == before + WORKERS)


def stop():
    if PID_FILE.exists():
        os.kill(int(PID_FILE.read_text()), signal.SIGTERM)
        app.wait_for("Redmine's end", lambda: not PID_FILE.exists())


class Api:
    """Redmine's REST interface. New ids are text in its JSON, and old ones numbers."""

    def __init__(self, url, key):
        self.url, self.key = url, key

    def call(self, method, path, headers={}, raw=False, **options):
        # No connection is kept, so that the requests spread over the workers.
        headers = {"X-Redmine-API-Key": self.key, "Connection": "close", **headers}
        answer = requests.request(method, self.url + path, headers=headers, timeout=app.PATIENCE, **options)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.text if raw or not answer.text.strip() else answer.json()

    def get(self, path, **params):
        return self.call("GET", path, params=params)

    def create_issue(self, **fields):
        issue = {"project_id": "first", "subject": "By REST", **fields}
        return str(self.call("POST", "/issues.json", json={"issue": issue})["issue"]["id"])

    def read_issue(self, id):
        return str(self.get(f"/issues/{id}.json")["issue"]["id"])


def ids_as_text():
    """Puts the initializer of docs/orm/ruby.md into Redmine."""
    [initializer] = app.blocks("docs/orm/ruby.md", "### JSON in Rails", "ruby")
    (ROOT / "config/initializers/ids_as_text.rb").write_text(initializer)


def convert(api):
    """Runs the chapter's steps while a client works. Until the restart, requests may fail because a prepared statement
    uses a table whose types have changed. No request fails for another reason, or later."""
    client = app.Client(api.create_issue, api.read_issue)
    client.start()
    client.enter("before")
    app.step("1. Find the columns")
    assert "(0 rows)" in app.step("2. See what is in the way")
    client.enter("types")
    app.step("3. Change the types")
    client.enter("old processes")
    ids_as_text()
    restart()
    client.enter("restarted")
    app.step("5. Set the defaults")
    new_from = len(client.created) + 1  # one may be under way
    client.enter("ids")
    app.step("6. Check")
    client.finish()
    by_types = client.failures_in("types") + client.failures_in("old processes")
    raised = re.findall(r"\] (Active\w+::\w+ \(.*)", (INSTANCE / "log/production.log").read_text())
    print(f"the client created {len(client.created)} issues; {len(by_types)} failed when types changed, by {raised}")
    assert len(client.failures) == len(by_types) == len(raised), client.failures
    assert all("cached plan must not change result type" in error for error in raised)
    for id in client.created[new_from:]:
        assert app.is_new_id(id), id


def use_by_rest(api):
    """Creates and relates rows of several kinds, and returns a new issue and a new user."""
    call = lambda path, **body: api.call("POST", path, json=body)
    person = {"login": "grace", "firstname": "Grace", "lastname": "New", "mail": "grace@example.com"}
    user = str(call("/users.json", user={**person, "password": PASSWORD})["user"]["id"])
    role = api.get("/roles.json")["roles"][0]["id"]
    call("/projects/first/memberships.json", membership={"user_id": user, "role_ids": [role]})
    version = str(call("/projects/first/versions.json", version={"name": "2.0"})["version"]["id"])
    binary = {"Content-Type": "application/octet-stream"}
    file = api.call("POST", "/uploads.json?filename=new.txt", data=b"new", headers=binary)
    issue = api.create_issue(subject="Made by REST", assigned_to_id=user, fixed_version_id=version,
                             uploads=[{"token": file["upload"]["token"], "filename": "new.txt"}])
    child = api.create_issue(subject="A child", parent_issue_id=issue)
    call(f"/issues/{issue}/relations.json", relation={"issue_to_id": "1", "relation_type": "relates"})
    for id in (user, version, issue, child):
        assert app.is_new_id(id), id

    found = api.get(f"/issues/{issue}.json", include="attachments,children,relations")["issue"]
    assert [str(x["id"]) for x in (found, found["assigned_to"], found["fixed_version"], *found["children"])] == [
        issue, user, version, child]
    [attached] = found["attachments"]
    assert attached["id"] == file["upload"]["id"] and app.is_new_id(attached["id"])
    assert api.call("GET", f"/attachments/download/{attached['id']}/new.txt", raw=True) == "new"
    [relation] = found["relations"]
    assert {str(relation["issue_id"]), str(relation["issue_to_id"])} == {"1", issue}
    assert [str(r["id"]) for r in api.get("/search.json", q="Made by REST")["results"]] == [issue]
    assert [str(i["id"]) for i in api.get("/issues.json", assigned_to_id=user)["issues"]] == [issue]
    return issue, user


class Pages:
    """Redmine's pages in a browser."""

    def __init__(self, driver, url):
        self.driver, self.url = driver, url

    def go(self, path):
        self.driver.get(self.url + path)

    def all(self, selector):
        return [element for element in self.driver.find_elements("css selector", selector) if element.is_displayed()]

    def one(self, selector):
        return app.wait_for(f"{selector} on {self.driver.current_url}", lambda: self.all(selector))[0]

    def type(self, selector, text):
        element = self.one(selector)
        element.clear()
        element.send_keys(text)

    def choose(self, selector, label):
        [option] = [o for o in self.one(selector).find_elements("tag name", "option") if o.text.strip() == label]
        option.click()

    def log_in(self):
        self.go("/login")
        self.type("#username", "admin")
        self.type("#password", PASSWORD)
        self.one("#login-submit").click()
        self.one("#loggedas")


def use_by_browser(pages, api, related, user):
    """Creates an issue with the form, and works on it as a person does, through the ids on the pages."""
    pages.log_in()
    pages.go("/projects/first/issues/new")
    pages.type("#issue_subject", "Made in the browser")
    pages.choose("#issue_assigned_to_id", "Ada Reporter")
    pages.choose("#issue_custom_field_values_1", "red")
    pages.one("#issue-form input[name=commit]").click()
    pages.one("#flash_notice")
    issue = pages.driver.current_url.rsplit("/", 1)[1]
    assert app.is_new_id(issue), issue
    assert f"#{issue}" in pages.one("h2").text

    pages.go(f"/issues/{issue}/edit")
    pages.type("#issue_notes", f"Compare #{related}")
    file = Path(os.environ["IDGEN_CLIENT_DIR"], "attached.txt")
    file.write_text("attached")
    pages.driver.find_element("css selector", "#issue-form input[type=file]").send_keys(str(file))
    app.wait_for("the upload", lambda: pages.driver.find_elements("css selector", "input[name$='[token]'][value]"))
    pages.one("#issue-form input[name=commit]").click()
    pages.one(f".journal a[href='/issues/{related}']")
    [attached] = api.get(f"/issues/{issue}.json", include="attachments")["issue"]["attachments"]
    pages.one(f".attachments a[href='/attachments/{attached['id']}']")
    assert app.is_new_id(attached["id"])

    # The list of suggestions is JSON, which the browser reads.
    pages.one("#relations .contextual a").click()
    pages.type("#relation_issue_to_id", "Made by REST")
    pages.one(".ui-autocomplete li").click()
    assert (typed := pages.one("#relation_issue_to_id").get_attribute("value")) == f"{related}, ", typed
    pages.one("#new-relation-form input[name=commit]").click()
    pages.one(f"#relations tr.issue a[href='/issues/{related}']")
    [relation] = api.get(f"/issues/{issue}/relations.json")["relations"]
    assert {str(relation["issue_id"]), str(relation["issue_to_id"])} == {issue, related}

    pages.one("#watchers .contextual a").click()
    pages.one(f"#users_for_watcher input[value='{user}']").click()
    pages.one("#new-watcher-form input[type=submit]").click()
    pages.one(f"#watchers a[href='/users/{user}']")

    pages.go(f"/issues/{issue}/time_entries/new")
    pages.type("#time_entry_hours", "2")
    pages.choose("#time_entry_activity_id", "Development")
    pages.one("#new_time_entry input[name=commit]").click()
    pages.one("#flash_notice")
    [entry] = api.get("/time_entries.json", issue_id=issue)["time_entries"]
    assert app.is_new_id(entry["id"]) and str(entry["issue"]["id"]) == issue

    pages.go("/projects/first/wiki/Wiki/edit")
    pages.type("#content_text", f"A changed page, with #1 and #{issue}")
    pages.one("#wiki_form input[name=commit]").click()
    pages.one(".wiki-page a[href='/issues/1']")
    pages.one(f".wiki-page a[href='/issues/{issue}']").click()
    assert f"#{issue}" in pages.one("h2").text

    for text in ("Made in the browser", f"#{issue}"):
        pages.go("/")
        pages.type("#q", f"{text}\n")
        if text.startswith("#"):
            pages.one("body.action-show h2")
        else:
            pages.one(f"#search-results a[href='/issues/{issue}']").click()
        app.wait_for("the issue", lambda: pages.driver.current_url.endswith(f"/issues/{issue}"))

    pages.go("/projects/first/issues")
    [query] = [link for link in pages.all("#sidebar a.query") if link.text == "Old reds"]
    query.click()
    pages.one("h2")
    app.wait_for("the saved query", lambda: "query_id=" in pages.driver.current_url)
    listed = {cell.text for cell in pages.all("tr.issue td.id")}
    reds = app.rows("""SELECT customized_id FROM custom_values JOIN issues ON issues.id = customized_id
        WHERE customized_type = 'Issue' AND value = 'red'
              AND assigned_to_id = (SELECT id FROM users WHERE login = 'ada')
              AND project_id = (SELECT id FROM projects WHERE identifier = 'first')
              AND status_id NOT IN (SELECT id FROM issue_statuses WHERE is_closed)""")
    assert issue in listed and listed == set(reds), (listed, reds)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    set_up()
    key = fill()
    port = int(sys.argv[2]) if len(sys.argv) > 2 else free_port()
    url = f"http://127.0.0.1:{port}"
    start(port)
    if sys.argv[1:2] == ["start"]:
        print(f"Redmine with old rows runs at {url}, with the database {os.environ['DATABASE_URL']}.")
        print(f"Its files are in {ROOT}.")
        print(f"Log in as admin with the password {PASSWORD}, or use REST with the header X-Redmine-API-Key: {key}")
        print(f"Restart all its processes: kill -USR2 $(cat {PID_FILE})")
        print(f"Stop it: kill $(cat {PID_FILE})")
        return
    try:
        api = Api(url, key)
        convert(api)
        related, user = use_by_rest(api)
        with app.browser() as driver:
            use_by_browser(Pages(driver, url), api, related, user)
        app.check_minted()
        # Fixtures and imports call this. It must work without the sequence.
        rails("rails", "runner", "ActiveRecord::Base.connection.reset_pk_sequence!('issues')")
        sequences = "pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace"
        assert app.value(f"SELECT count(*) FROM {sequences}") == "0"
    finally:
        stop()


main()
