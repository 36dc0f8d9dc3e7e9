"""Render this host's highstate with this release, run it with test=True, and say in hashes what came of it; there is no master.

`sidle_rehearsal.py` loads this file, and only if the environment asks for it: SIDLE_HIGHSTATE="render|test SECONDS KEY". Files and pillar come
from the minion's own cache, or are its own where it has no master. All work (`sidle_lowstate.py`) is done by a child, which the parent bounds, in a file system in
memory that is mounted for this process alone: it is gone with the process, also after a kill. No value of a pillar, a file or a result leaves
the child: only ids and functions, names of known arguments, and hashes by KEY, which is made for one rehearsal of two releases.

  highstate: null: not asked for
    source: cache | own                      where the files come from
    pillar_age: seconds, or null             how old the cached pillar is
    reasons: [{kind, name, sls}]             why there are no states; kinds: memory | pillar | files | empty | time | failed,
                                             and what rendering says: sls | template | renderer | function | requisite |
                                             recursive | top | render
    states: [{id, sls, function, arguments: {name: hash}, unstable, rendered_with, run_with, options}]
            unstable: names of arguments that two renderings of this release did not agree on; "": on the whole state
            rendered_with, run_with: the grains that its SLS, and its run, have read
            options: {name: default}, which its text names, and which this host has not set
    results: null, or [{result, comment, changes}]    in the order of `states`, null for a state without one; text and changes as hashes
    untested: null, or {exception, id, function}      which state ended the run, so that there are no results
    grains: {name: hash}                     those that were read
    signatures: {function: {argument: default}}    of the state functions
    seconds
"""

import ctypes
import importlib.util
import json
import logging
import os
import resource
import select
import signal
import sys
import time

# What a file system in memory may hold: rendered templates and copies of sources.
ROOM = b"size=256m,mode=1777"
# How much more memory than the loaded release: low data are small, and an endless template must not take the host's.
MEMORY_BYTES_MAX = 1 << 30
# A report of ten thousand states has five megabytes.
REPORT_BYTES_MAX = 12 << 20
# From <sched.h>, <sys/mount.h> and <sys/prctl.h>.
CLONE_NEWNS, MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE, PR_SET_PDEATHSIG = 0x00020000, 2, 4, 0x4000, 0x80000, 1

# The work itself, in a file of its own beside this one; like this one, it may not be of the release that runs it.
SPEC = importlib.util.spec_from_file_location("sidle_lowstate", os.path.join(os.path.dirname(os.path.realpath(__file__)), "sidle_lowstate.py"))
lowstate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lowstate)
Reason = lowstate.Reason


class Asked:
    """What the environment asks for, and a room in memory for it, which no other process sees."""

    def __init__(self, words, scratch):
        mode, seconds, key = words.split()
        self.tests, self.seconds, self.key = mode == "test", int(seconds), key.encode("ascii")
        self.place = os.path.join(scratch, "memory")
        os.mkdir(self.place)
        libc = ctypes.CDLL(None, use_errno=True)

        def mount(source, target, kind, flags, words):
            return libc.mount(source, target, kind, ctypes.c_ulong(flags), words) == 0

        is_own = libc.unshare(CLONE_NEWNS) == 0 and mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)
        self.in_memory = is_own and mount(b"tmpfs", os.fsencode(self.place), b"tmpfs", MS_NOSUID | MS_NODEV, ROOM)


def origin(opts):
    """What `redirect` takes away: where the minion's files and pillar are."""
    local = opts.get("file_client") == "local" or opts.get("master_type") == "disable"
    return {"cachedir": opts["cachedir"], "local": local and not opts.get("use_master_when_local")}


def report(wanted, opts, origin):
    """The whole of `highstate`."""
    started = time.monotonic()
    found = {"source": "own" if origin["local"] else "cache", "pillar_age": None, "reasons": [], "states": [], "results": None,
             "untested": None, "grains": {}, "signatures": {}}
    try:
        if not wanted.in_memory:
            raise Reason("memory")
        found.update(of_child(wanted, opts, origin))
    except Reason as reason:
        found["reasons"] = [reason.told()]
    found["seconds"] = round(time.monotonic() - started, 2)
    return found


def of_child(wanted, opts, origin):
    """What a bounded child of this process finds."""
    source, target = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(source)
            bound(wanted.seconds)
            try:
                found = lowstate.Work(wanted, opts, origin).report()
            except Reason as reason:
                found = {"reasons": [reason.told()]}
            with os.fdopen(target, "wb") as file:
                file.write(json.dumps(found).encode("ascii"))
            code = 0
        finally:
            os._exit(code)
    os.close(target)
    try:
        text = all_of(source, time.monotonic() + wanted.seconds)
    except Reason:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(source)
        failed = os.waitpid(child, 0)[1]
    if failed:
        raise Reason("failed")
    return json.loads(text)


def all_of(source, end):
    """What comes out of a pipe until it is closed."""
    text = b""
    while len(text) < REPORT_BYTES_MAX:
        if not select.select([source], [], [], max(0, end - time.monotonic()))[0]:
            raise Reason("time")
        part = os.read(source, 1 << 16)
        if not part:
            return text
        text += part
    raise Reason("failed")


def bound(seconds):
    """Limit time and memory, leave no core, end with the parent, and say nothing: messages of Salt hold what it renders."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY_BYTES_MAX
    for kind, limit in ((resource.RLIMIT_AS, most), (resource.RLIMIT_CPU, seconds + 1), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (limit, limit))
    logging.disable(logging.CRITICAL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
