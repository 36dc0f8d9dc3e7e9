"""A tree that is being mended under a running minion: jobs wait for that, and one that fell into a hole is answered all the same.

This is the one part of the guard that acts in a job's own process (or thread): what a job imports
is missing there.
"""

import importlib
import logging
import os
import time
import traceback

from .slot import seconds_since_boot

log = logging.getLogger(__name__)
# In the gate's directory: until when, in seconds since boot, jobs are to wait. The supervisor makes it as soon as it
# sees a change in the tree, renews it while it mends, and removes it after that.
MENDING = "mending"
# However long that takes: a job that waits for ever is worse than one that fails.
MOST_SECONDS = 120
LOOK_SECONDS = 0.05
# How soon after the damage the supervisor has seen it, at the latest.
NOTICED_SECONDS = 2.0


def is_mended(slot):
    """Whether nobody is mending the tree now. A word that was not renewed is one of a supervisor that is gone."""
    try:
        with open(slot.path(MENDING), encoding="utf-8") as file:
            return float(file.read()) < seconds_since_boot()
    except (OSError, ValueError):
        return True


def wait(slot):
    """Wait until the tree is whole, as far as anybody knows; gives whether there was anything to wait for."""
    if is_mended(slot):
        return False
    until = time.monotonic() + MOST_SECONDS
    while not is_mended(slot) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    importlib.invalidate_caches()
    return True


def wait_if_noticed(slot):
    """The same for a job that failed: the damage may be so new that nobody has seen it yet."""
    until = time.monotonic() + NOTICED_SECONDS
    while time.monotonic() < until:
        if wait(slot):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def run(slot, minion, data, start):
    """Run a job by `start`. One that fails before its function has begun is tried once more where the tree was mended meanwhile; one that
    fails without an answer gets one."""
    wait(slot)
    steps = _Steps(minion)
    try:
        return start()
    except Exception as first:
        if steps.begun or steps.answered:
            raise
        error = first
        if wait_if_noticed(slot):
            try:
                return start()
            except Exception as again:  # noqa: BLE001
                error = again
        if not steps.answered:
            steps.answer(data, error)
        raise error  # noqa: B904


class _Steps:
    """How far a job came, in the minion object of its own process."""

    def __init__(self, minion):
        self.minion = minion
        self.pid = os.getpid()
        self.begun = self.answered = False
        self._watch("_execute_job_function", "begun")
        self._watch("_return_pub", "answered")

    def _watch(self, name, what):
        original = getattr(self.minion, name, None)
        if original is None:
            # Started by spawning: nothing is known of it, so nothing is done twice.
            self.begun = self.answered = True
            return

        def watched(*arguments, **options):
            setattr(self, what, True)
            return original(*arguments, **options)

        setattr(self.minion, name, watched)

    def answer(self, data, error):
        """Tell the master that the job could not be run."""
        told = "".join(traceback.format_exception_only(type(error), error)).strip()
        try:
            self.minion._return_pub({
                "jid": data["jid"], "fun": data["fun"], "fun_args": data.get("arg", []), "success": False, "retcode": 1,
                "return": f"The job could not be run: {told}",
            })  # fmt: skip
        except Exception:
            log.exception("sidle-guard: cannot answer job %s, which could not be run", data.get("jid"))
