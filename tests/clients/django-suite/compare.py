"""Compares two runs of Django's tests. Of the tests that pass with plain keys, exactly those of a list fail with idgen.

    compare.py IDGEN_LOG PLAIN_LOG DIFFERENCES

In the list, a line that begins with "# " has the reason for the tests after it. Those after "## " may also pass.
"""

import re
import sys


def failed(path):
    with open(path, errors="replace") as log:
        text = log.read()
    if not re.search(r"^Ran [1-9]", text, re.MULTILINE):
        sys.exit(f"no test has run:\n{text[-3000:]}")
    return set(re.findall(r"^(?:FAIL|ERROR): (?:\w+ \()?([\w.]+)", text, re.MULTILINE))


idgen, plain = failed(sys.argv[1]), failed(sys.argv[2])
listed, either = {}, set()
with open(sys.argv[3]) as lines:
    for line in map(str.rstrip, lines):
        if line.startswith("#"):
            reason = line
        elif reason.startswith("## "):
            either.add(line)
        else:
            listed[line] = reason
new = idgen - plain - listed.keys() - either
gone = listed.keys() - (idgen - plain)
for test in sorted(new):
    print("fails with idgen, and not with plain keys:", test)
for test in sorted(gone):
    print("is listed, and does not differ any more:", test, listed[test])
print(len(idgen - plain), "differences,", len(plain), "tests that fail with plain keys")
sys.exit(bool(new or gone))
