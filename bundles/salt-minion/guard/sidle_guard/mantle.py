"""Salt's own guard against a second minion, kept at its place: `process_responsibility_*.pid` beside the pid file.

Salt looks there at each start, and ends with exit code 1 if the process that the file names still lives. Each slot has a pid file of its own, and by
that a file of its own: without a file at the default place too, a minion that is started by hand or by a package would run every job a second time.
The file names a main process of this minion in every phase: the one with the singletons, or until that has written it, another one.
"""

import json
import logging
import os

from .slot import Stat

log = logging.getLogger(__name__)
PREFIX = "process_responsibility_"
# From a main process up to the first process of its slot: Salt has one between, wrappers add some.
MOST_ANCESTORS = 6


def beside(pidfile):
    """Where Salt has the file for this pid file."""
    folder, name = os.path.split(pidfile)
    return os.path.join(folder, PREFIX + name)


def content(module):
    """What Salt would write for this process; None: this Salt does not say it."""
    try:
        found = module.get_process_info()
        return json.dumps(found) if found else None
    except Exception as error:  # noqa: BLE001
        log.debug("sidle-guard: cannot describe this process: %s", error)
        return None


def wrap(module, paths):
    """Let `salt.utils.process.claim_mantle_of_responsibility` look at the default place, too, and take it."""
    original = getattr(module, "claim_mantle_of_responsibility", None)
    if original is None or not hasattr(module, "check_mantle_of_responsibility"):
        return

    def claim(file_name):
        if not paths.is_own(file_name):
            return original(file_name)
        default, holder = beside(paths.default_pidfile), None
        try:
            holder = module.check_mantle_of_responsibility(default)
            stat = Stat.of(holder) if holder is not None else None
            if stat and stat.has_ended:
                holder = None  # To Salt it is still there.
            if holder is not None and not paths.is_of_this_minion(holder):
                log.error("sidle-guard: another minion runs as process %s, says %s: this one does not start", holder, default)
                return False
        except Exception:
            log.exception("sidle-guard: cannot look for another minion")
        claimed = original(file_name)
        if claimed:
            # A main that Salt's parent starts again has no right to make it anew: it writes into this one.
            paths.give_to_user(file_name)
            # While it may: Salt is about to give up its rights. A file that names another main process of this minion stays as it is.
            paths.keep_writable(default, None if holder else content(module))
        return claimed

    claim.original = original
    module.claim_mantle_of_responsibility = claim


def ancestors(pid):
    """The process itself and those above it."""
    found = []
    while pid > 1 and len(found) < MOST_ANCESTORS:
        found.append(pid)
        stat = Stat.of(pid)
        pid = stat.parent if stat else 0
    return found
