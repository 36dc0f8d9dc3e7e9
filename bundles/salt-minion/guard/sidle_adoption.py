"""sidle writes this file for a moment, and removes it: it loads the guard into the running minion, see sidle_guard.attach.

It adds no grain. The minion's own Python reads it, however old.
"""

import io
import json
import os
import sys

ADOPTION = json.loads(u"""@ADOPTION@""")


def sidle_adoption():
    """Act in the minion's main process; jobs load grains, too."""
    if os.getpid() == ADOPTION["main"]:
        sys.path.insert(0, ADOPTION["guard"])
        try:
            from sidle_guard import attach

            attach.arm(ADOPTION["gate"], ADOPTION["leader"])
        except Exception as error:  # noqa: BLE001
            _tell("{0}: {1}".format(type(error).__name__, error))
        finally:
            sys.path.remove(ADOPTION["guard"])
    return {}


def _tell(reason):
    """A report of a process without a guard: why it has none."""
    report = {
        "schema": 1, "leader": ADOPTION["leader"], "pid": os.getpid(), "start_time": ADOPTION["start_time"],
        "wrapped": [], "overlap": reason, "serial": 0, "role": "active", "singletons": True, "announced": True, "prove": 0,
        "jobs": [], "held": 0, "returning": 0, "peers": [], "updated": ADOPTION["now"],
    }
    path = os.path.join(ADOPTION["gate"], "slots", "{0}.json".format(ADOPTION["leader"]))
    with io.open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(u"" + json.dumps(report))
    os.rename(path + ".tmp", path)
