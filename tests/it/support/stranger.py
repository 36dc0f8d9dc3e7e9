"""A local user without rights, who does what he can to a host's sidle: `python3 stranger.py ROOT SIDLE PACKAGE SUPERVISOR RUNNING NEXT PROGRAM`, as root, which it gives up.

Writes `NAME: what came of it` for each act, a line each, then `ready`; goes on with what can be done again and again, and holds what it got, until its
input ends.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time

ROOT, SIDLE, PACKAGE, SUPERVISOR = sys.argv[1:5]
# The release that runs, one that is to come, and the name of a program.
RUNNING, NEXT, PROGRAM = sys.argv[5:8]
NOBODY = 65534
HELD = []
CHILDREN = []
LIBC = ctypes.CDLL(None, use_errno=True)


def told(name, act):
    """Does it once, and says what came of it."""
    try:
        found = act()
        print(f"{name}: done {found if found is not None else ''}".rstrip(), flush=True)
    except OSError as error:
        print(f"{name}: {os.strerror(error.errno) if error.errno else error}", flush=True)
    except subprocess.SubprocessError as error:
        print(f"{name}: {error}", flush=True)


def below(*parts):
    return os.path.join(ROOT, *parts)


PLACES = ["opt", "opt/sidle", "var/lib/sidle", "run/sidle", "var/cache/sidle", "etc/sidle"]


def everything():
    for place in PLACES:
        yield below(place)
        for directory, directories, files in os.walk(below(place)):
            # The trees' own files are many, and alike.
            if directory.count("/versions/") and len(directory.split("/versions/")[1].split("/")) > 2:
                directories.clear()
            for name in directories + files:
                yield os.path.join(directory, name)


def locked(how, seen):
    got = 0
    for path in everything():
        key = (path, how)
        try:
            stat = os.stat(path)
            if (key, stat.st_ino) in seen:
                continue
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            continue
        seen.add((key, stat.st_ino))
        HELD.append(fd)
        got += 1
    return f"{got} locks"


def record_locks():
    for path in everything():
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            HELD.append(fd)
        except OSError:
            pass


def leases():
    for path in everything():
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            HELD.append(fd)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            pass


def watched():
    fd = LIBC.inotify_init1(os.O_NONBLOCK)
    HELD.append(fd)
    count = 0
    for path in list(everything()):
        count += LIBC.inotify_add_watch(fd, path.encode(), 0xFFF) >= 0
    return f"{count} watches"


def instances():
    for _ in range(10000):
        if LIBC.inotify_init1(0) < 0:
            break


def mapped():
    for path in everything():
        try:
            if os.path.isfile(path) and os.path.getsize(path):
                with open(path, "rb") as file:
                    HELD.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except OSError:
            pass


def process(*arguments, title=None, directory=None, environment=None):
    child = subprocess.Popen(
        [title or arguments[0], *arguments[1:]],
        executable=arguments[0],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    CHILDREN.append(child)


def sleeper(title, **more):
    return lambda: process("/bin/sleep", "100000", title=title, **more)


def sidle(*arguments, **environment):
    def act():
        ran = subprocess.run(
            [SIDLE, "--root", ROOT, *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return f"exit {ran.returncode}"

    return act


def connected(path):
    def act():
        for _ in range(64):
            peer = socket.socket(socket.AF_UNIX)
            HELD.append(peer)
            peer.setblocking(False)
            peer.connect(path)

    return act


def abstract():
    for name in ("sidle", f"sidle/{PACKAGE}", f"sidle@{PACKAGE}"):
        peer = socket.socket(socket.AF_UNIX)
        peer.bind(b"\0" + name.encode())
        peer.listen(1)
        HELD.append(peer)


def crowd():
    environment = {f"SIDLE_{number}": "x" * 1000 for number in range(60)}
    for _ in range(150):
        process("/bin/sleep", "100000", title=f"sidle supervise {PACKAGE}", environment=environment)
    return "150 processes"


def descriptors():
    try:
        while True:
            HELD.append(os.open(ROOT, os.O_RDONLY))
    except OSError as error:
        for fd in HELD[-100:]:
            if isinstance(fd, int):
                os.close(fd)
        del HELD[-100:]
        return f"{len(HELD)} held, {error.strerror}"


def filled(place):
    def act():
        with open(os.path.join(place, f"stranger-{os.getpid()}"), "wb") as file:
            HELD.append(file.name)
            os.posix_fallocate(file.fileno(), 0, 64 << 20)

    return act


def opened(path, mode, text=""):
    def act():
        with open(path, mode) as file:
            file.write(text) if text else None

    return act


def of_supervisor(name):
    return f"/proc/{SUPERVISOR}/{name}"


def reopened():
    got = 0
    for number in os.listdir(of_supervisor("fd")):
        HELD.append(os.open(of_supervisor(f"fd/{number}"), os.O_RDONLY))
        got += 1
    return f"{got} descriptors"


def traced():
    if LIBC.ptrace(16, int(SUPERVISOR), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def mounted():
    if LIBC.mount(b"none", below("opt/sidle").encode(), b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def own_mounts():
    """A mount namespace of the stranger's own, where he is root, with the store mounted elsewhere in it; not for long, since it keeps the mounts of
    the tests beside this one."""
    child = subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", f"mount --bind {below('opt/sidle')} /mnt; exec sleep 5"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    CHILDREN.append(child)


def linked(path):
    def act():
        os.link(path, f"/tmp/stranger-{os.getpid()}-{len(HELD)}")

    return act


def run_for_ever():
    """A program of the release, as anybody may run one."""
    process(SIDLE, "--root", ROOT, "run", PACKAGE)


def forged_agent():
    """A process that says of itself, as an agent does, that it is the instance's."""
    environment = {"SIDLE_INSTANCE": PACKAGE, "SIDLE_ROOT": ROOT, "SIDLE_RELEASE": RUNNING}
    process("/bin/sh", "-c", "SIDLE_LEADER=$$ exec sleep 100000", environment=environment)


def forged_lock_in_tmp():
    for name in ("sidle", "sidle.lock", f"sidle-{PACKAGE}"):
        os.mkdir(f"/tmp/{name}.{os.getpid()}")
        HELD.append(f"/tmp/{name}.{os.getpid()}")


ESCAPES = "\033[2J\033]0;sidle\007\r\nsidle: all is well"
SEEN = set()
instance = f"var/lib/sidle/instances/{PACKAGE}"
run = f"run/sidle/{PACKAGE}"
ACTS = {
    "flock -x on all that opens": lambda: locked(fcntl.LOCK_EX, SEEN),
    "flock -s on all that opens": lambda: locked(fcntl.LOCK_SH, SEEN),
    "record locks on all that opens": record_locks,
    "leases on all that opens": leases,
    "inotify on all that opens": watched,
    "all inotify instances of a user": instances,
    "mappings of all that opens": mapped,
    "flock on the program": lambda: HELD.append(os.open(SIDLE, os.O_RDONLY)) or fcntl.flock(HELD[-1], fcntl.LOCK_EX | fcntl.LOCK_NB),
    "open the package's lock": lambda: os.open(below(f"var/lib/sidle/{PACKAGE}/lock"), os.O_RDONLY),
    "open the starts' lock": lambda: os.open(below(f"var/lib/sidle/{PACKAGE}/starts"), os.O_RDONLY),
    "open a lease": lambda: os.open(below(f"var/lib/sidle/{PACKAGE}/leases/{RUNNING}"), os.O_RDONLY),
    "open the instance's lock": lambda: os.open(below(f"{instance}/lock"), os.O_RDONLY),
    "open the trust's lock": lambda: os.open(below("var/lib/sidle/trust/lock"), os.O_RDONLY),
    "remove the package's lock": lambda: os.unlink(below(f"var/lib/sidle/{PACKAGE}/lock")),
    "make a lock first": lambda: os.open(below(f"var/lib/sidle/{PACKAGE}/leases/{NEXT}"), os.O_CREAT | os.O_RDONLY),
    "descriptors of the supervisor": reopened,
    "memory of the supervisor": opened(of_supervisor("mem"), "r+b"),
    "environment of the supervisor": opened(of_supervisor("environ"), "rb"),
    "trace the supervisor": traced,
    "stop the supervisor": lambda: os.kill(int(SUPERVISOR), signal.SIGSTOP),
    "kill the supervisor": lambda: os.kill(int(SUPERVISOR), signal.SIGKILL),
    "reload the supervisor": lambda: os.kill(int(SUPERVISOR), signal.SIGHUP),
    "nice the supervisor": lambda: os.setpriority(os.PRIO_PROCESS, int(SUPERVISOR), 19),
    "starve the supervisor": lambda: os.sched_setaffinity(int(SUPERVISOR), {0}),
    "out of memory, the supervisor first": opened(of_supervisor("oom_score_adj"), "w", "1000"),
    "connect to the control socket": connected(below(f"{run}/control")),
    "a control socket of his own": lambda: socket.socket(socket.AF_UNIX).bind(below(f"{run}/control2")),
    "abstract names": abstract,
    "a file in /run": opened(below("run/sidle/stranger"), "w"),
    "a package of his own": lambda: os.mkdir(below("opt/sidle/evil")),
    "an instance of his own": lambda: os.mkdir(below("var/lib/sidle/instances/evil")),
    "a release of his own": lambda: os.mkdir(below(f"opt/sidle/{PACKAGE}/versions/9.9-1")),
    "something in staging": lambda: os.mkdir(below(f"opt/sidle/{PACKAGE}/staging/{NEXT}")),
    "move current": lambda: os.rename(below(f"opt/sidle/{PACKAGE}/current"), below(f"opt/sidle/{PACKAGE}/old")),
    "another current": lambda: os.symlink("/tmp", below(f"opt/sidle/{PACKAGE}/current.new")),
    "write the journal": opened(below(f"{instance}/journal"), "w"),
    "write the settings": opened(below("etc/sidle/sidle.toml"), "w"),
    "another fragment of settings": opened(below("etc/sidle/conf.d/evil.toml"), "w"),
    "a hard link to a program": linked(below(f"opt/sidle/{PACKAGE}/versions/{RUNNING}/bin/{PROGRAM}")),
    "change times": lambda: os.utime(below(f"opt/sidle/{PACKAGE}/versions/{RUNNING}")),
    "change modes": lambda: os.chmod(below(f"opt/sidle/{PACKAGE}/versions/{RUNNING}"), 0o777),
    "extended attributes": lambda: os.setxattr(below(f"opt/sidle/{PACKAGE}/versions/{RUNNING}"), "user.evil", b"1"),
    "mount over the store": mounted,
    "the store in a mount namespace of his own": own_mounts,
    "a title with escapes": sleeper(ESCAPES),
    "a title like the supervisor's": sleeper(f"sidle supervise {PACKAGE}"),
    "a title like a job's": sleeper("ProcessPayload(jid=20260101000000000000)"),
    "a long title": sleeper("x" * 100000),
    "an agent of his own": forged_agent,
    "stand in a release": sleeper("sleep", directory=below(f"opt/sidle/{PACKAGE}/versions/{RUNNING}")),
    "stand in the instance": sleeper("sleep", directory=below(instance)),
    "a crowd": crowd,
    "names in /tmp": forged_lock_in_tmp,
    "fill /tmp": filled("/tmp"),
    "fill /dev/shm": filled("/dev/shm"),
    "sidle install": sidle("install", "/dev/zero"),
    "sidle switch": sidle("switch", PACKAGE, NEXT),
    "sidle rollback": sidle("rollback", PACKAGE),
    "sidle repair": sidle("repair", PACKAGE),
    "sidle remove": sidle("remove", PACKAGE, RUNNING),
    "sidle hold": sidle("hold", PACKAGE),
    "sidle cancel": sidle("cancel", PACKAGE),
    "sidle supervise": sidle("supervise", PACKAGE),
    "sidle with a hostile environment": sidle(
        "status", LD_PRELOAD="/tmp/evil.so", PYTHONPATH="/tmp", SIDLE_ROOT="/tmp", TMPDIR="/nowhere", TZ="/etc/shadow", RUST_LOG="trace"
    ),
    "run a program of the release": run_for_ever,
    "all descriptors": descriptors,
}

os.setgroups([])
os.setgid(NOBODY)
os.setuid(NOBODY)
LIBC.prctl(1, signal.SIGKILL)
for name, act in ACTS.items():
    told(name, act)
print("ready", len(ACTS), struct.calcsize("P") * 8, flush=True)
os.set_blocking(0, False)
while True:
    time.sleep(0.02)
    locked(fcntl.LOCK_EX, SEEN)
    try:
        if os.read(0, 1) == b"":
            break
    except BlockingIOError:
        pass
for child in CHILDREN:
    child.kill()
    child.wait()
for name in HELD:
    if isinstance(name, str):
        os.rmdir(name) if os.path.isdir(name) else os.unlink(name)
