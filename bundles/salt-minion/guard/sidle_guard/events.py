"""The minion's local bus: returns on their way to the master, and commands that both processes need."""

import functools
import logging
import os
import socket
import struct

log = logging.getLogger(__name__)
TAG_END = b"\n\n"
REQUEST = "__master_req_channel_payload"
SCHEDULED = "__schedule_return"
# What a child gives to main to pass on; main answers for it from then on.
PASSED_ON = (REQUEST, SCHEDULED, "fire_master", "__beacons_return", "_salt_error", "_minion_mine")
# Commands that change what main keeps in memory: a job in one process means the minion, not that process.
SHARED = ("module_refresh", "pillar_refresh", "grains_refresh", "beacons_refresh", "matchers_refresh",
          "resource_refresh", "environ_setenv", "manage_schedule", "manage_beacons")
# Of these: what a minion object that connects just now may have read already, and would not read again.
REFRESHES = ("module_refresh", "pillar_refresh", "grains_refresh", "matchers_refresh", "resource_refresh")
SHARED_FUNCTIONS = {
    "manage_schedule": {"add", "delete", "modify", "enable", "disable", "enable_job", "disable_job",
                        "postpone_job", "skip_job", "reload"},
    "manage_beacons": {"add", "delete", "modify", "enable", "disable", "enable_beacon", "disable_beacon", "reset"},
}
# In a forwarded event: it has come from the other process, and must not go back.
FORWARDED = "__sidle_forwarded"


def _tag(package):
    # Without a copy of the rest, which may be megabytes.
    end = package.find(TAG_END)
    return package[:end if end >= 0 else None].decode("utf-8", "replace")


def _unpack(package):
    import salt.utils.event

    return salt.utils.event.SaltEvent.unpack(package)[1]


class Watch:
    """One event that main passes on: counted until the master has acknowledged it. `note` must not keep what is sent: that may be big, and take long."""

    def __init__(self, jobs, note):
        self.jobs = jobs
        self.note = note
        jobs.passing += 1

    @classmethod
    def begin(cls, guard, minion, package):
        """A watch, if this minion object passes that event on; else None."""
        tag = _tag(package)
        if not tag.startswith(PASSED_ON):
            return None
        master = minion.opts.get("master")
        if tag.startswith(REQUEST):
            if tag.rsplit("/", 1)[-1] != master:
                return None
            load = _unpack(package)
            if load.get("cmd") == "_return":
                guard.job_log.write("sending", load.get("jid"))
                return cls(guard.jobs, functools.partial(guard.jobs.returned, load.get("jid"), master))
        elif tag.startswith(SCHEDULED):
            load = _unpack(package)
            return cls(guard.jobs, functools.partial(guard.jobs.schedule_returned, load.get("schedule"), load.get("pid")))
        return cls(guard.jobs, lambda: None)

    def end(self):
        """The master has it, or Salt has given it up."""
        self.jobs.passing -= 1
        self.note()


def forward(guard, package):
    """Let the other processes know of a command that came over this one's bus."""
    tag = _tag(package)
    if not tag.startswith(SHARED):
        return
    if tag.startswith(REFRESHES) and not guard.singletons.held and len(guard.minions()) < len(guard.peer_names()):
        # Main hands events to minion objects that are connected; this one is about to be, with what it has read before.
        guard.singletons.missed[tag] = package
    data = _unpack(package)
    kind = next((name for name in SHARED_FUNCTIONS if tag.startswith(name)), None)
    if kind and data.get("func") not in SHARED_FUNCTIONS[kind]:
        return
    if kind and _heeds(guard, kind):
        _touch(guard.singletons, kind, data)
    if data.get(FORWARDED) or not guard.beside_others():
        return
    for leader in guard.roles().slots:
        if leader != guard.slot.leader:
            _send(os.path.join(guard.paths.bus_of(leader), guard.paths.sockets[1]), tag, {**data, FORWARDED: True})


def catch_up(guard):
    """Follow the refreshes that nobody here was there for."""
    missed, guard.singletons.missed = guard.singletons.missed, {}
    for package in missed.values():
        guard.spawn(functools.partial(guard.original("salt.minion.MinionManager.handle_event"), guard.manager, package))


def _heeds(guard, kind):
    """Whether this process follows such a command: its bus is there seconds before its minion objects are."""
    if kind == "manage_schedule":
        return guard.schedule() is not None
    return any(hasattr(minion, "beacons") for minion in guard.minions())


def _touch(singletons, kind, data):
    """What was changed here since the start is not to be overruled by an older file."""
    names = set(data.get("schedule") or ()) if data.get("func") == "add" and kind == "manage_schedule" else set()
    if data.get("name"):
        names.add(data["name"])
    if kind == "manage_beacons":
        singletons.touched_beacons |= names
    else:
        singletons.touched_schedule |= names
        if data.get("persist") and not singletons.held:
            singletons.owes_schedule_file = True


def _send(path, tag, data):
    """Put an event on another process's bus: all versions read the same frames from senders."""
    import salt.payload
    import salt.utils.msgpack

    body = tag.encode() + TAG_END + salt.payload.dumps(data, use_bin_type=True)
    frame = salt.utils.msgpack.dumps({"head": {}, "body": body}, use_bin_type=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        # Never wait for the other: it may be stopped just now.
        connection.setblocking(False)
        try:
            connection.connect(path)
            connection.sendall(struct.pack(">I", len(frame)) + frame)
        except OSError as error:
            log.debug("sidle-guard: cannot forward %s to %s: %s", tag, path, error)
