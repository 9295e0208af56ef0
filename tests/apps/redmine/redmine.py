"""Redmine, filled with old rows, converted by the blocks of docs/coming-from.md under a client, and used."""

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
INSTANCE = ROOT / "instances/default"  # where Debian's Redmine has what is not code
PID_FILE = INSTANCE / "tmp/puma.pid"
SERVER_LOG = INSTANCE / "log/puma.log"
WORKERS = 2
PASSWORD = secrets.token_hex(8)
FILLED_ISSUES = 40


def set_up():
    """Redmine's own files for this database."""
    for file in ("config/database.yml", "Gemfile.lock", "instances"):
        (ROOT / file).unlink()  # links to folders of the system
    for folder in ("config", "files", "log", "tmp"):
        (INSTANCE / folder).mkdir(parents=True)
    (ROOT / "Gemfile.local").write_text('gem "pg"\ngem "puma"\n')
    (INSTANCE / "config/secret_key.txt").write_text(secrets.token_hex(64))
    names = {"host": "PGHOST", "port": "PGPORT", "username": "PGUSER", "password": "PGPASSWORD", "database": "PGDATABASE"}
    settings = [f"  {key}: {os.environ[name]!r}\n" for key, name in names.items()]
    (INSTANCE / "config/database.yml").write_text("production:\n  adapter: postgresql\n" + "".join(settings))
    os.environ["RAILS_ENV"] = "production"


def rails(*command):
    """Runs a command of Redmine's programs, and returns its output."""
    done = subprocess.run(["bundle", "exec", *command], cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def fill():
    """Makes Redmine's tables, with rows in them, and returns the API key of its administrator."""
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
    """Redmine's REST interface. Numbers in its JSON become text, so that nothing rounds them."""

    def __init__(self, url, key):
        self.url, self.key = url, key

    def call(self, method, path, **options):
        # No connection is kept, so that the requests spread over the workers.
        headers = {"X-Redmine-API-Key": self.key, "Connection": "close"}
        answer = requests.request(method, self.url + path, headers=headers, timeout=app.PATIENCE, **options)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json() if answer.text.strip() else None

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
    """The chapter's steps, each under the client, which sees no failure but that of step 3."""
    client = app.Client(api.create_issue, api.read_issue)
    client.start()
    client.enter("before")
    app.step("1. Find the columns")
    client.enter("columns")
    assert "(0 rows)" in app.step("2. See what is in the way")
    client.enter("types")
    app.step("3. Change the types")
    client.enter("types changed")
    print("failures of the client around step 3:", client.failures_in("types") + client.failures_in("types changed"))
    ids_as_text()
    client.enter("restart")
    restart()
    client.enter("restarted")
    app.step("5. Set the defaults")
    client.enter("ids")
    app.step("6. Check")
    client.finish()
    return client


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
        print(convert(api).failures)
    finally:
        stop()


main()
