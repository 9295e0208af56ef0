"""What the tests of applications share: the chapter of docs/coming-from.md on whole applications, a client that uses
one while it is converted, and a browser."""

import re
import subprocess
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CHAPTER = "## A whole application, old numbers kept"
PATIENCE = 300  # seconds to wait for a condition


def blocks(page, heading, language):
    """Returns the blocks of this language under a heading of a page, down to the next heading of its rank or higher."""
    lines = iter((TOP / page).read_text().splitlines())
    assert heading in lines, f"{page} has no {heading}"
    rank = heading.index(" ")
    found, block = [], None
    for line in lines:
        if block is None:
            if re.match(f"#{{1,{rank}}} ", line):
                break
            if line.startswith("```"):
                block = []
                wanted = line == f"```{language}"
        elif line == "```":
            if wanted:
                found.append("\n".join(block) + "\n")
            block = None
        else:
            block.append(line)
    return found


def psql(statements):
    """Runs statements as the application's role, and returns what psql prints."""
    done = subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1"], cwd=TOP, input=statements, text=True, capture_output=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{statements}\n{done.stdout}{done.stderr}")
    return done.stdout


def rows(query):
    """The rows of a query, as text whose columns have a bar between them."""
    return psql(f"\\pset format unaligned\n\\pset tuples_only\n{query};").splitlines()


def value(query):
    """The first column of a query's first row, as text."""
    return (rows(query) or [""])[0].split("|")[0]


def step(heading, defaults="set_defaults(5)"):
    """Runs the blocks of a step of the chapter, with these defaults, and returns their output."""
    print(f"-- {heading}", flush=True)
    assert CHAPTER in (TOP / "docs/coming-from.md").read_text()
    outputs = []
    for block in blocks("docs/coming-from.md", f"### {heading}", "sql"):
        while True:
            try:
                outputs.append(psql(block.replace("set_defaults(5)", defaults)))
                break
            except RuntimeError as error:
                # The page says to run such a block again.
                if "canceling statement due to lock timeout" not in str(error):
                    raise
    print("".join(outputs), flush=True)
    return "".join(outputs)


def wait_for(what, condition):
    """Waits until the condition is true, and returns its value."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.1)
    return result


class Client(threading.Thread):
    """Creates rows and reads them until it is stopped. `create()` returns the new id, and `read(id)` the id in the
    answer, both as text. An exception is recorded under the phase in which the call began."""

    def __init__(self, create, read):
        super().__init__(daemon=True)
        self.create, self.read = create, read
        self.created = []
        self.failures = []
        self.successes = 0
        self.phase = None
        self.stopped = False

    def run(self):
        while not self.stopped:
            phase = self.phase
            try:
                self.created.append(self.create())
                for id in (self.created[-1], self.created[len(self.created) // 2]):
                    self.check(id)
                self.successes += 1
            except Exception as error:
                self.failures.append((phase, f"{type(error).__name__}: {error}"))

    def check(self, id):
        assert (found := self.read(id)) == id, f"asked for {id}, and got {found}"

    def enter(self, phase):
        """Begins a phase, and returns when some of its rounds have succeeded."""
        self.phase = phase
        before = self.successes
        try:
            wait_for(f"the client in {phase}", lambda: self.successes >= before + 12)
        except AssertionError as error:
            raise AssertionError(f"{error}, whose last failures were {self.failures[-3:]}") from None

    def failures_in(self, phase):
        return [error for of_phase, error in self.failures if of_phase == phase]

    def finish(self):
        """Stops it, and reads each of its ids again."""
        self.stopped = True
        self.join()
        for id in self.created:
            self.check(id)


def browser():
    """Headless Chromium, with a profile of its own that the driver deletes at the end."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for option in (
        "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
        "disable-component-update disable-sync window-size=1400,1800"
    ).split():
        options.add_argument(f"--{option}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def is_new_id(id):
    """Whether idgen has minted this id, which is text, for the shard of these tests."""
    return int(id) > 2**53 and value(f"SELECT shard_of({id})") == "5"


def check_minted():
    """Checks that each key is an old number or an id of this shard, and that all columns with keys are wide enough."""
    keys = rows("""SELECT "table", "column" FROM idgen_convert.integer_columns WHERE found_by = 'key'""")
    minted = 0
    for table, column in (key.split("|") for key in keys):
        new = f"count(*) FROM {table} WHERE {column} >= 2147483648"
        assert value(f"SELECT {new} AND ({column} < 2::bigint ^ 53 OR shard_of({column}) <> 5)") == "0", table
        minted += value(f"SELECT {new}") != "0"
    assert minted > 0
    print(f"{minted} of {len(keys)} keys have minted ids", flush=True)
    step("6. Check")
