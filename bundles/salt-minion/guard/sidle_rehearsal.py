"""Load a minion's configuration and extensions with this release, without a master, and report.

    TREE/bin/python3 -E -s -B -m sidle_rehearsal -c CONFIG_DIR [--scratch DIR] [--seconds N]
    TREE/bin/python3 -E -s -B /path/of/sidle_rehearsal.py -c CONFIG_DIR ...

The second form rehearses a release that doesn't bring this file. It runs beside the working
minion of the same host, on the same configuration directory and the same synced modules, and
leaves no trace: caches, sockets, logs and pid files go to the scratch directory (an empty one;
default: a temporary one). Where the caller may (root), every other file system is read-only for it
and there is no network: what custom modules and grains write while they load does not stay. They
can still ask a daemon by its socket, and signal processes. --unsealed leaves the seal out.

One JSON object goes to standard output, all else to standard error. Exit 0: the report is whole;
its "failure" says whether the release got as far as it should.

  schema 1 · version, python · sealed: ["files", "network"] · seconds, memory_kilobytes
  failure: null, or {"stage": configuration|user|grains|modules, "reason"}
  functions: {kind: {module: [function]}}     own: {kind: ["module.function"]}, of files outside the tree
  grains: [key]
  errors: [{kind, name, file, own, how, reason}]   how: import (could not be imported) | failed (an
          exception later: __virtual__, __init__, a grains function) | declined (__virtual__ said no)
  missing: [{kind, name, where}]              configured, but not in this release
  problems: [text]                            what Salt warns of when it reads the configuration
  unknown_options: [name]                     set on this host, but no option of this release
  extras: [{name, version, directory}]        packages that salt-pip installed for this Python
  extras_place: path                          where this Python looks for what salt-pip installs; null: not known
  packages: [name]                            all packages that this Python sees, names normalised
  own_versions: {name: version}               packages of the tree itself
  sign_in: int                                version of the sign-in at a master; null: not known
  highstate: {…}                              see sidle_highstate.py; null: not asked for
  masters: {…}                                see sidle_masters.py; null: not known
  needs: [{…}]                                see sidle_needs.py
"""

import sys

if not sys.flags.isolated and sys.path:
    # The directory of the program, or the current one: it may be another release's packages.
    del sys.path[0]

import argparse
import base64
import contextlib
import ctypes
import hashlib
import importlib.util
import inspect
import json
import logging
import multiprocessing
import os
import pwd
import re
import resource
import shutil
import signal
import tempfile
import time

try:
    import importlib.metadata
except ImportError:
    # Python 3.6 and 3.7 of a packaged minion: no salt-pip was ever made for them.
    pass

SCHEMA = 1
# The caller bounds it, too; this is for one whose caller was killed.
SECONDS_MAX = 180
# The lists of all functions of a large host take a megabyte.
REPORT_BYTES_MAX = 64 << 20
# An exception may carry a whole document.
REASON_LENGTH_MAX = 400
# From <linux/sched.h>, <linux/mount.h> and <sys/prctl.h>.
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x1, 0x20, 0x1000, 0x4000, 0x80000
# The flags of one mount that a remount must repeat, as /proc/self/mountinfo has them.
MOUNT_FLAGS = {"nosuid": 0x2, "nodev": 0x4, "noexec": 0x8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000}
SHARED_MEMORY = b"/dev/shm"
PR_SET_PDEATHSIG = 1
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


class Failure(Exception):
    """The minion would not come up: in which stage, and why."""

    def __init__(self, stage, reason):
        super().__init__(reason)
        self.stage = stage


def main():
    """Rehearse and print the report."""
    started = time.monotonic()
    output = os.dup(1)
    os.dup2(2, 1)
    arguments = argparse.ArgumentParser(prog="sidle_rehearsal")
    arguments.add_argument("-c", dest="directory", required=True)
    arguments.add_argument("--scratch")
    arguments.add_argument("--seconds", type=int, default=SECONDS_MAX)
    arguments.add_argument("--unsealed", action="store_true")
    arguments = arguments.parse_args()
    os.umask(0o077)
    directory, scratch = os.path.realpath(arguments.directory), os.path.realpath(arguments.scratch or temporary())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(arguments.seconds)
    give_way()
    # As in the minion, whose guard does the same: since Python 3.14 the default is another.
    multiprocessing.set_start_method("fork", force=True)
    sealed = [] if arguments.unsealed else seal(scratch, directory)
    highstate = Highstate(scratch)
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    os.chdir(scratch)
    own = {"schema": SCHEMA, "python": "{}.{}.{}".format(*sys.version_info), "sealed": sealed, **layer()}
    told = of_child(output, arguments.seconds)
    if told is not None:
        if told.pop("is_without_extras", False):
            own.update(extras=[], packages=sorted(own.get("own_versions", ())))
        send(output, {**told, **own})
    report = {"version": None, **rehearse(directory, scratch, highstate)}
    report["seconds"] = round(time.monotonic() - started, 2)
    report["memory_kilobytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In the child this is the pipe.
    send(output, report)


def send(output, report):
    """Write a report, and end: no word of what custom modules have registered for the end, nor of their threads."""
    text = (json.dumps(report) + "\n").encode("ascii")
    while text:
        text = text[os.write(output, text):]
    sys.stderr.flush()
    os._exit(0)


def of_child(output, seconds):
    """Give what a child rehearses; None: this is the child, whose `output` goes to its parent.

    Custom code runs in the child, as another user perhaps. What root acts on, such as the directories of packages, this process reads by itself.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(writing, output, inheritable=False)
        os.close(writing)
        signal.alarm(seconds)
        end_with_parent()
        return None
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        # A line: a process that custom code has started may hold the other end.
        text = pipe.readline(REPORT_BYTES_MAX)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        # As if there were no child: the caller tells an alarm from a lack of memory by the signal.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if os.WEXITSTATUS(status) or not isinstance(told, dict):
        sys.stderr.flush()
        os._exit(os.WEXITSTATUS(status) or 1)
    return told


class Highstate:
    """The host's highstate, if the caller asks for it and the release brings the program for it."""

    def __init__(self, scratch):
        words = os.environ.pop("SIDLE_HIGHSTATE", None)
        self.program = beside("sidle_highstate") if words else None
        self.asked = self.program.Asked(words, scratch) if self.program else None

    def origin(self, opts):
        """Where files and pillar are; None: not asked for."""
        return self.program.origin(opts) if self.asked else None

    def report(self, opts, origin):
        """What came of it."""
        return self.program.report(self.asked, opts, origin) if self.asked else None


def beside(name):
    """A program of the same release as this one; None: it brings none."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), name + ".py")
    if not os.path.exists(path):
        return None
    spec = importlib.util.spec_from_file_location(name, path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def end_with_parent():
    """End this process when its parent ends, however that happens. The kernel forgets it when the user changes."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def temporary():
    """A directory in which a child goes on; this process, which nothing seals, waits and removes it."""
    scratch = tempfile.mkdtemp(prefix="sidle-rehearsal-")
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(min(status, 1))
    return scratch


def give_way():
    """If memory runs out, this process goes, not the minion."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def open_memory(mount, needed):
    """Give semaphores, which are made in /dev/shm when modules are imported, a place; keep what is needed there visible."""
    kept = {}
    for path in needed:
        path = os.path.realpath(path)
        top = os.path.join(SHARED_MEMORY, *path.split(b"/")[3:4])
        if path.startswith(SHARED_MEMORY + b"/") and top not in kept:
            kept[top] = os.open(top, os.O_PATH)
    is_new = mount(b"tmpfs", SHARED_MEMORY, b"tmpfs", 0)
    for top, fd in kept.items():
        if is_new:
            os.mkdir(top)
            if not mount(b"/proc/self/fd/%d" % fd, top, None, MS_BIND | MS_REC):
                raise SystemExit(f"cannot rehearse: cannot keep {os.fsdecode(top)} visible")
        os.close(fd)


def seal(scratch, directory):
    """Make every file system but the scratch directory read-only, and cut the network; say what was done."""
    libc = ctypes.CDLL(None, use_errno=True)
    sealed = []

    def mount(source, target, kind, flags):
        return libc.mount(source, target, kind, ctypes.c_ulong(flags), None) == 0

    def set_read_only(path, flags, read_only):
        words = (MOUNT_ATTR_RDONLY, 0, 0, 0) if read_only else (0, MOUNT_ATTR_RDONLY, 0, 0)
        attributes = (ctypes.c_uint64 * 4)(*words)
        numbers = [ctypes.c_long(number) for number in (SYS_MOUNT_SETATTR, AT_FDCWD)]
        return libc.syscall(*numbers, path, ctypes.c_long(flags), attributes, ctypes.c_long(32)) == 0

    place = os.fsencode(scratch)
    if libc.unshare(CLONE_NEWNS) == 0 and mount(b"none", b"/", None, MS_REC | MS_SLAVE):
        if mount(place, place, None, MS_BIND):
            is_whole = set_read_only(b"/", AT_RECURSIVE, True)
            if is_whole and not set_read_only(place, 0, False):
                raise SystemExit("cannot rehearse: the scratch directory stays read-only")
            is_whole = is_whole or each_read_only(mount, place)
            open_memory(mount, [place, *map(os.fsencode, (sys.prefix, __file__, directory))])
            if is_whole:
                sealed.append("files")
    if libc.unshare(CLONE_NEWNET) == 0:
        sealed.append("network")
    return sealed


def each_read_only(mount, place):
    """Make all mounts but one read-only where the kernel cannot do that at once (before 5.12); say whether all are."""
    is_whole = True
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = [line.split(" ")[4:6] for line in file]
    # The last one at a path is the one that is seen there.
    for path, options in {os.fsencode(path): options for path, options in found}.items():
        target = re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code.group(1), 8)]), path)
        flags = sum(MOUNT_FLAGS.get(option, 0) for option in options.split(","))
        if target != place and not mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags):
            # What lies below another mount cannot be reached, so nobody can write there.
            is_whole = is_whole and not os.path.ismount(target)
    return is_whole


def rehearse(directory, scratch, highstate):
    """What this release makes of the configuration directory."""
    stage = Stage()
    report = {"failure": None, "functions": {}, "own": {}, "grains": [], "missing": [], "highstate": None, "masters": None, "needs": []}
    masters, needs, reached = beside("sidle_masters"), beside("sidle_needs"), "configuration"
    try:
        try:
            opts = stage.configuration(directory)
            reached = "user"
            report["masters"] = masters.known(opts) if masters else None
            origin, log_file = highstate.origin(opts), opts.get("log_file")
            stage.has_own_pillar = opts.get("file_client") == "local" and not opts.get("use_master_when_local")
            redirect(opts, scratch)
            become(opts, scratch)
            unused = unused_extras()
            report["is_without_extras"] = bool(unused)
            stage.problems += unused
            reached = "grains"
            report["grains"] = stage.grains(opts)
            reached = "modules"
            loaders = stage.modules(opts)
            report["functions"] = {kind: grouped(names) for kind, (names, _) in loaders.items()}
            report["own"] = {kind: own for kind, (_, own) in loaders.items() if own}
            report["missing"] = stage.missing(opts)
            report["highstate"] = highstate.report(opts, origin)
            report["needs"] = needs.needs(stage.configured(opts), report["highstate"], log_file) if needs else []
        except Failure:
            raise
        except (Exception, SystemExit) as error:
            logging.getLogger(__name__).error("the rehearsal failed", exc_info=True)
            raise Failure(reached, told(error)) from error
    except Failure as failure:
        report["failure"] = {"stage": failure.stage, "reason": str(failure)}
    report.update(version=stage.version, errors=list(stage.errors.values()), problems=list(dict.fromkeys(stage.problems)))
    report["sign_in"] = sign_in()
    return {**report, "unknown_options": sorted(stage.unknown_options)}


def sign_in():
    """The version of the sign-in that the minion sends, which a master's minimum_auth_version is about; None: not known."""
    # Salt has no name for it: it is written where the request is made, by each of the request's makers.
    found = importlib.util.find_spec("salt")
    for directory in found.submodule_search_locations if found else ():
        try:
            with open(os.path.join(directory, "channel", "client.py"), encoding="utf-8") as file:
                versions = re.findall(r"""["']version["']: *([0-9]+)""", file.read())
        except (OSError, ValueError):
            continue
        if versions:
            return min(map(int, versions))
    return None


def layer():
    """The packages that salt-pip has laid over the release for this Python, and all that it sees."""
    named = os.environ.get("SALT_EXTRAS_DIR")
    label = "extras-{}.{}".format(*sys.version_info)
    extras, own = {}, {}
    if not hasattr(importlib, "metadata"):
        return {"extras": [], "packages": []}
    directories = list(sys.path)
    try:
        # A release of sidle's own make. Where another user could put code, root does not look for it; the packages are there all the same.
        from _sidle_extras import directory as place

        directories.insert(0, place())
    except ImportError:
        def place():
            # Salt's own bundle.
            root = getattr(sys, "RELENV", None)
            return named or (os.path.join(root, label) if root else None)
    for directory in dict.fromkeys(map(os.path.abspath, directories)):
        is_extra = os.path.basename(directory) == label or (named and directory == os.path.abspath(named))
        for found in importlib.metadata.distributions(path=[directory]):
            try:
                name = re.sub("[-_.]+", "-", found.metadata["Name"]).lower()
                version = str(found.version)
            except Exception:  # noqa: BLE001 - a package without sound metadata: its directory's name has to do.
                name, version = bounded(str(getattr(found, "_path", "") or "a package without a name")), ""
            if not is_extra:
                own.setdefault(name, version)
            elif name not in extras or is_whole(found):
                # An upgrade by salt-pip leaves the description of the earlier version.
                extras[name] = {"name": name, "version": version, "directory": directory}
    packages = sorted({*extras, *own})
    extras = sorted(extras.values(), key=lambda extra: extra["name"])
    return {"extras": extras, "extras_place": place(), "packages": packages, "own_versions": own}


def unused_extras():
    """What root does not look for, since another user could put code there."""
    module = sys.modules.get("_sidle_extras")
    place = module.directory() if module else None
    if not place or place in sys.path or not os.path.isdir(place):
        return []
    return [f"packages of salt-pip in {place} are not used, since another user than root can change it or a directory above it"]


def is_whole(package):
    """Whether each Python file of a package is as pip listed it."""
    try:
        # Commands, which pip moves elsewhere, begin with "..".
        files = [file for file in package.files or () if file.hash and file.suffix == ".py" and file.parts[0] != ".."]
        return all(digest_of(file) == file.hash.value for file in files)
    except (OSError, ValueError):
        return False


def digest_of(file):
    """The digest of a package's file as it is now, as pip writes it."""
    return base64.urlsafe_b64encode(hashlib.new(file.hash.mode, file.read_binary()).digest()).rstrip(b"=").decode()


def redirect(opts, scratch):
    """No master, no pillar, and nothing of the host is written to."""
    for key, name in (("cachedir", "cache"), ("sock_dir", "sockets")):
        opts[key] = os.path.join(scratch, name)
        os.makedirs(opts[key], exist_ok=True)
    # extension_modules stays where it is: below the real cachedir.
    opts["pidfile"] = os.path.join(scratch, "pid")
    opts["log_file"] = os.path.join(scratch, "log")
    opts["file_client"] = "local"
    opts["pillar"] = {}
    opts["grains_cache"] = False
    # Names of all addresses from DNS: slow without a network, and the key is there all the same.
    opts["enable_fqdns_grains"] = False


def become(opts, scratch):
    """Custom code runs as the user that the minion runs as, or not at all."""
    import salt.utils.user
    import salt.utils.verify

    user = opts.get("user")
    if not user or user == salt.utils.user.get_user():
        return
    try:
        entry = pwd.getpwnam(user)
        if os.geteuid() == 0:
            for path in (scratch, opts["cachedir"], opts["sock_dir"]):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        if salt.utils.verify.check_user(user):
            end_with_parent()
            return
    except (KeyError, OSError) as error:
        raise Failure("user", f"it can't become the user {user}: {told(error)}") from error
    raise Failure("user", f"it can't become the user {user}")


class Stage:
    """Loads, and remembers what went wrong."""

    def __init__(self):
        self.version = None
        self.errors = {}
        self.problems = []
        self.unknown_options = []
        self.loaders = {}
        # Without a master the minion makes its pillar itself.
        self.has_own_pillar = False

    def configuration(self, directory):
        """The options as the minion reads them; errors end it as they end the minion."""
        import salt.config
        import salt.version

        self.version = salt.version.__version__
        apply = salt.config.apply_minion_config

        def applied(overrides=None, *more, **named):
            self.unknown_options = set(overrides or {}) - set(salt.config.VALID_OPTS)
            return apply(overrides, *more, **named)

        salt.config.apply_minion_config = applied
        # What sdb:// stands for often comes from a network, and no module is told apart by it.
        salt.config.apply_sdb = lambda opts, sdb_opts=None: opts
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.problems.append(bounded(record.getMessage()))
        logging.getLogger("salt").addHandler(handler)
        # A broken _schedule.conf is renamed by Salt: the minion's to do.
        replace, os.replace = os.replace, lambda *_: None
        path = os.path.join(directory, "minion")
        try:
            # Without this file the minion goes on with minion.d and its defaults.
            return salt.config.minion_config(path, ignore_config_errors=False)
        except SystemExit as error:
            reason = self.problems[-1] if self.problems else told(error)
            raise Failure("configuration", reason) from error
        finally:
            os.replace = replace
            logging.getLogger("salt").removeHandler(handler)
            salt.config.apply_minion_config = apply

    def grains(self, opts):
        """The keys of all grains, which are in `opts` afterwards."""
        import salt.loader

        self.listen()
        opts["grains"] = salt.loader.grains(opts, force_refresh=True)
        return sorted(map(str, opts["grains"]))

    def listen(self):
        """Notice every module that a loader of any kind can't load, and every grains function that fails."""
        from salt.loader.lazy import LazyLoader

        load, run = LazyLoader._load_module, LazyLoader.run

        def loads(loader, name):
            try:
                loaded = load(loader, name)
                reason = None if loaded else loader.missing_modules.get(name)
            except OSError as error:
                loaded, reason = False, error
            if not loaded:
                self.refused(loader, name, reason)
            return loaded

        def runs(loader, function, *arguments, **named):
            try:
                return run(loader, function, *arguments, **named)
            except Exception as error:
                # Not what Salt calls while it loads a module: that is told by `loads`.
                if loader.tag == "grains" and inspect.isfunction(function) and not function.__name__.startswith("__"):
                    file = inspect.unwrap(function).__code__.co_filename
                    name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
                    self.error("grains", name, file, "failed", told(error))
                raise

        LazyLoader._load_module, LazyLoader.run = loads, runs

    def refused(self, loader, name, reason):
        """A loader could not or would not load `name`."""
        file = loader.file_mapping[name][0]
        if isinstance(reason, BaseException):
            how, reason = "import", told(reason)
        else:
            reason = bounded(str(reason or ""))
            failed = reason.startswith(("Exception raised when processing __virtual__", "__init__ failed"))
            how = "failed" if failed else "declined"
        self.error(loader.tag, name, file, how, reason)

    def error(self, kind, name, file, how, reason):
        """Remember an error once."""
        entry = {"kind": kind, "name": name, "file": file, "own": is_own(file), "how": how, "reason": reason}
        self.errors.setdefault((kind, name, file), entry)

    def modules(self, opts):
        """All functions of each kind of module, and those of this host's own."""
        import salt.loader
        from salt.loader.lazy import LazyLoader

        make, loaders = salt.loader, self.loaders
        utils = loaders["utils"] = make.utils(opts)
        functions = loaders["module"] = make.minion_mods(opts, utils=utils)
        serializers = make.serializers(opts)
        loaders["states"] = make.states(opts, functions, utils, serializers)
        loaders["returner"] = make.returners(opts, functions)
        loaders["beacons"] = make.beacons(opts, functions)
        loaders["engines"] = make.engines(opts, functions, {}, utils)
        loaders["executor"] = make.executors(opts, functions)
        loaders["render"] = make.render(opts, functions, loaders["states"])
        loaders["output"] = make.outputters(opts)
        loaders["matchers"] = make.matchers(opts)
        pack = {"__salt__": functions, "__utils__": utils, "__pillar__": {}, "__context__": {}}
        for kind, path in others(opts):
            loaders.setdefault(kind, LazyLoader([path], opts, tag=kind, pack=dict(pack)))
        return {kind: listed(loader) for kind, loader in loaders.items()}

    def configured(self, opts):
        """What the configuration has the minion use: (kind, name, where)."""
        own = opts.get("ext_pillar") if self.has_own_pillar else None
        yield from (("pillar", str(name), "ext_pillar") for entry in (own if isinstance(own, list) else ()) for name, _ in pairs(entry))
        yield from configured(opts)

    def missing(self, opts):
        """What the configuration names and this release doesn't have."""
        import salt.loader

        missing = []
        for kind, name, where in self.configured(opts):
            if kind == "pillar":
                present = name in salt.loader.pillars(opts, self.loaders["module"])
            elif kind == "provider":
                present = bool(salt.loader.raw_mod(opts, name, self.loaders["module"]))
            else:
                key = {"beacons": ".beacon", "engines": ".start", "executor": ".execute", "returner": ".returner"}
                present = name + key.get(kind, "") in self.loaders[kind]
            entry = {"kind": kind, "name": name, "where": where}
            if not present and entry not in missing:
                missing.append(entry)
        return missing


def others(opts):
    """Directories of synced modules that no other loader here reads: (kind, path)."""
    known = ("modules", "states", "grains", "returners", "beacons", "engines", "executors", "utils", "renderers", "output")
    known += ("matchers", "serializers")
    root = opts.get("extension_modules") or ""
    for kind in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        if kind not in known and os.path.isdir(os.path.join(root, kind)):
            yield kind, os.path.join(root, kind)


def listed(loader):
    """Names of all functions of a loader, and of those from outside the tree."""
    names = sorted(map(str, loader))
    # Outputters and renderers are seen through a wrapper that takes `.output` and `.render` off the names.
    suffix = getattr(loader, "suffix", "")
    functions = (loader._dict if suffix else loader)._dict
    own = [name for name in names if is_own(file_of(functions.get(name + suffix)))]
    return names, own


def grouped(names):
    """Function names by module."""
    groups = {}
    for name in names:
        module, _, function = name.partition(".")
        groups.setdefault(module, []).append(function)
    return groups


def file_of(function):
    """The file of the module that a function was loaded from."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, "__file__", None)


def is_own(file):
    """True for this host's own files: those outside the release."""
    return bool(file) and not os.path.realpath(file).startswith(os.path.realpath(sys.prefix) + os.sep)


def configured(opts):
    """What the configuration has the minion use: (kind, name, where)."""
    for job, entry in pairs(opts.get("schedule")):
        if isinstance(entry, dict) and entry.get("enabled", True):
            where = f"schedule {job}"
            yield from (("module", name, where) for name in words(entry.get("function") or entry.get("func")))
            yield from (("returner", name, where) for name in words(entry.get("returner")))
    for name, entry in pairs(opts.get("beacons")):
        settings = merged(entry)
        if name != "enabled" and settings.get("enabled", True):
            yield "beacons", str(settings.get("beacon_module") or name), f"beacon {name}"
    for entry in opts.get("engines") or ():
        for name, settings in pairs(entry if isinstance(entry, dict) else {entry: None}):
            yield "engines", str(merged(settings).get("engine_module") or name), f"engine {name}"
    for alias, entry in pairs(opts.get("mine_functions")):
        name = merged(entry).get("mine_function") or alias
        yield "module", str(name), f"mine function {alias}"
    yield from (("executor", name, "module_executors") for name in words(opts.get("module_executors")))
    yield from (("returner", name, "return") for name in words(opts.get("return")))
    yield from (("output", name, "output") for name in words(opts.get("output")))
    for part in str(opts.get("renderer") or "").split("|"):
        yield from (("render", name, "renderer") for name in part.split()[:1])
    yield from (("provider", str(name), f"provider of {what}") for what, name in pairs(opts.get("providers")))


def pairs(value):
    """The items of a mapping; none of anything else."""
    return list(value.items()) if isinstance(value, dict) else []


def merged(value):
    """The settings of an entry that may be a mapping or a list of mappings."""
    settings = {}
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            settings.update(part)
    return settings


def words(value):
    """The names in a text with commas, or in a list."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return [item.strip() for item in items if isinstance(item, str) and item.strip()]


def told(error):
    """An exception in one line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a custom exception may not even be told.
        text = ""
    name = type(error).__name__
    return bounded(f"{name}: {text}" if text else name)


def bounded(text):
    """One line of bearable length."""
    text = " ".join(text.split())
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"


if __name__ == "__main__":
    main()
