"""What a minion uses as far as its configuration, its highstate and its log tell, where nobody has counted: names and places, never arguments.

  needs: [{kind, name, where, last}]     `last`: the last day, of what the log tells; null elsewhere
"""

import os
import re

# A module's function that each kind of module is called by.
CALLED = {"beacons": ".beacon", "engines": ".start", "executor": ".execute", "returner": ".returner", "render": ".render", "output": ".output"}
# What the minion logs for each job, from the log level info on; a jid begins with the day, in UTC.
JOB = re.compile(rb"Executing command ([A-Za-z0-9_]+\.[A-Za-z0-9_.]{1,100}) with jid ([0-9]{4})([0-9]{2})([0-9]{2})[0-9]{12}")
LOG_BYTES_MAX = 8 << 20
NEEDS_MAX = 5_000
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
WHERE_LENGTH_MAX = 120


def needs(configured, highstate, log_file):
    """Give all needs, each once. `configured`: as the rehearsal has them; `highstate`: its report."""
    found = {}

    def add(kind, name, where, last=None):
        if NAME.fullmatch(name) and len(found) < NEEDS_MAX:
            known = found.setdefault((kind, name, where), last)
            found[kind, name, where] = max(known, last) if known and last else known or last

    for kind, name, where in configured:
        add(*named(kind, name), where[:WHERE_LENGTH_MAX])
    for state in (highstate or {}).get("states") or ():
        add("states", state["function"], f"highstate, SLS {state['sls']}"[:WHERE_LENGTH_MAX])
    for name, day in of_log(log_file):
        add("module", name, "log", day)
    return [{"kind": kind, "name": name, "where": where, "last": last} for (kind, name, where), last in sorted(found.items(), key=lambda pair: pair[0])]


def named(kind, name):
    """Give the kind and the function of what a configuration names by its module."""
    return ("module", name) if kind == "provider" else (kind, name if "." in name else name + CALLED.get(kind, ""))


def of_log(path):
    """Give each function that the end of the minion's log tells of, and the day."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES_MAX))
            text = file.read(LOG_BYTES_MAX)
    except (OSError, TypeError, ValueError):
        # No log, or one of syslog: it tells nothing.
        return []
    return [(name.decode("ascii"), b"-".join(day).decode("ascii")) for name, *day in JOB.findall(text)]
