"""An execution module of the tests' minions: every execution leaves exactly one line, so that executions can be counted.

The line: what, jid (- without one), name, pid, pid of the parent, Salt's release, seconds since 1970.
"""

import os
import time

import salt.version

__virtualname__ = "mark"


def _mark(what, name, keywords):
    words = (what, keywords.get("__pub_jid", "-"), name, os.getpid(), os.getppid(), salt.version.__version__)
    line = " ".join(str(word) for word in words) + f" {time.time():.3f}\n"
    # One write to a file opened for appending: lines of two processes never mix.
    descriptor = os.open(__opts__["mark_file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def run(name, **keywords):
    """A job of the stream."""
    _mark("run", name, keywords)
    return name


def sleep(seconds, name, **keywords):
    """A long job of the stream: a line when it begins, another one when it is done, after so many seconds or when the test ends all long ones."""
    _mark("run", name, keywords)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not os.path.exists(__opts__["mark_file"] + ".end"):
        time.sleep(max(0, min(0.5, end - time.monotonic())))
    _mark("done", name, keywords)
    return name


def tick(name, **keywords):
    """A scheduled job."""
    _mark("tick", name, keywords)
    return name


def mine():
    """A mine function: runs at every mine.update."""
    _mark("mine", "-", {})
    return True


def startup():
    """What the startup state calls."""
    _mark("startup", "-", {})
    return True
