"""Redmine, filled with old rows, converted by the blocks of docs/coming-from.md under a client, and used."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import requests

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import app

ROOT = Path(os.environ["IDGEN_CLIENT_DIR"], "unpacked/usr/share/redmine")
INSTANCE = ROOT / "instances/default"  # where Debian's Redmine has what is not code
LOG = INSTANCE / "log/production.log"
SERVER_LOG = INSTANCE / "log/puma.log"
PID_FILE = INSTANCE / "tmp/puma.pid"
WORKERS = 2
