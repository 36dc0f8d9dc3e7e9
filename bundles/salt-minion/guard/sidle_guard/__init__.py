"""Lets two Salt minions of one host run side by side: a gate gives every job to exactly one.

A `.pth` file loads this into every program of the tree's Python that has SIDLE_GATE in its
environment; it acts in the minion's daemon only. Salt's files stay as they are: what they define
is wrapped after they were imported. The protocol is the gate's, version 1, as the supervisor
speaks it: see `roles`, `claims`, `report`.
"""

import os
import sys


def boot():
    """Arm the minion that is about to start, if this is one."""
    if not _is_daemon():
        return
    beside_another = os.environ.get("SIDLE_ROLE", "active") != "active"
    try:
        from . import hook
        from .slot import Slot
        from .uses import Uses

        _start_by_fork()

        # Programs that jobs start inherit the environment, and are not this minion.
        slot = Slot.taken_from(os.environ)
        hook.install(slot, Uses.wanted(os.environ))
    except Exception as error:
        # Logging is not set up yet.
        sys.stderr.write(f"sidle-guard: cannot arm this minion: {error}\n")
        if beside_another:
            # Without a guard it would run every job a second time.
            raise SystemExit(1) from error
        # A lone minion without a guard is better than none.


def _start_by_fork():
    """Start the minion's processes by fork: since Python 3.14 the default is another, whose processes have no guard."""
    if sys.version_info >= (3, 14):
        import multiprocessing

        multiprocessing.set_start_method("fork", force=True)


def _is_daemon():
    """Whether this Python was started as `salt-minion`: not salt-call, not pip."""
    # While .pth files are read, sys.argv is not there yet; the original one is.
    for word in sys.orig_argv[1:]:
        if word in ("-c", "-m"):
            return False
        if not word.startswith("-"):
            return word.endswith("salt-minion")
    return False
