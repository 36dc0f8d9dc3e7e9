"""
What the tests share. Functional tests ask the real program: `SIDLE` names it [default: found in PATH], `SIDLE_ROOT` its root [default: an empty one].
"""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def sidle_options(tmp_path_factory):
    program = os.environ.get("SIDLE") or shutil.which("sidle")
    if not program:
        pytest.fail("cannot find the program sidle: install it, or name it, as in SIDLE=target/debug/sidle")
    return {"program": program, "root": os.environ.get("SIDLE_ROOT") or str(tmp_path_factory.mktemp("root")), "package": "demo-agent"}


@pytest.fixture(scope="session")
def salt_factories_config():
    """Its log server listens on loopback alone."""
    return {"log_server_host": "127.0.0.1"}
