"""The sockets and the pid file: own paths for each slot, and the default paths for the process with the singletons.

Two minions on one configuration would take each other's sockets and refuse each other's pid file.
So each process has a directory named by its slot below the configured `sock_dir`, with its sockets. Its pid file and Salt's
process_responsibility_*.pid lie in the gate: Salt writes them as root before it becomes another user, through any link, so they must not lie
where that user can make one. Programs that use the default paths (salt-call, scripts, monitoring, a second minion that looks for the first)
find the process with the singletons.
"""

import hashlib
import logging
import os
import pwd
import shutil
import sys

from . import mantle
from .roles import RolesFile, started_by_switch
from .singletons import config_signature
from .slot import start_time

log = logging.getLogger(__name__)
# sun_path in Linux: 108 bytes with the final zero.
LONGEST_SOCKET_PATH = 107
# A pid, or what Salt knows of a process.
LONGEST_FILE_BYTES = 4096
# In the directory of a slot that still needs the default paths for itself.
HELD = "held"


class Paths:
    """This slot's own paths, and the default ones."""

    def __init__(self, slot):
        self.slot = slot
        self.conf_file = None
        self.sock_dir = None
        self.owner = None
        self.pidfile = None
        self.default_sock_dir = None
        self.default_pidfile = None
        self.sockets = ()
        # Why this minion must stay at the default paths, and so can't run beside another.
        self.refused = None
        # Whom Salt becomes.
        self.user = None
        self._unwritable = set()
        # The process that made the directories.
        self.prepared_by = None
        # The signature of the configuration files when they were read.
        self.loaded_signature = None

    def move(self, opts):
        """Change a loaded configuration to the slot's own paths."""
        if self.refused is not None:
            return
        self._choose(opts)
        if self.refused is not None:
            return
        if self._is_main() and self.prepared_by != os.getpid():
            self.prepared_by = os.getpid()
            self.user = opts.get("user")
            self._prepare(self.user)
        if started_by_switch(RolesFile(self.slot.path("roles")).read(), self.slot):
            # Salt sleeps that long before it does anything, for the sake of masters after a power cut. A switch has its own `--splay`.
            opts["random_startup_delay"] = 0
        opts["sock_dir"] = self.sock_dir
        opts["pidfile"] = self.pidfile

    def inherit(self, opts):
        """Give a minion that listens at the default paths a second way to its sockets, for when the first leads elsewhere."""
        self._choose(opts)
        if self.refused is not None:
            return
        try:
            os.makedirs(self.sock_dir, exist_ok=True)
            for name in self.sockets:
                way = self.own(name)
                _unlink(way)
                # Of the sockets themselves: who is connected stays so, and who connects finds the same process.
                os.link(os.path.realpath(os.path.join(self.default_sock_dir, name)), way)
            with open(self.own(HELD), "w", encoding="utf-8"):
                pass
        except OSError as error:
            self.refused = f"its sockets can't have a second name: {error}"

    def let_go(self):
        """Release the default paths: no job of this process needs them any more."""
        _unlink(self.own(HELD))

    def _held_by_another(self):
        """Jobs that began before the guard was there return over the default paths, and the sockets of another
        minion are no use to them: 3007's main answers nobody but its own bus."""
        others = (name for name in _names(self.default_sock_dir) if name.isdecimal() and int(name) != self.slot.leader)
        return any(os.path.exists(os.path.join(self.default_sock_dir, name, HELD)) and start_time(int(name)) is not None
                   for name in others)

    def own(self, path):
        """The own path of a socket of this process."""
        return os.path.join(self.sock_dir, os.path.basename(path))

    def is_own(self, path):
        """Whether this is what Salt calls this main process's file of responsibility."""
        return bool(self.pidfile and self.default_pidfile and path == mantle.beside(self.pidfile))

    def is_of_this_minion(self, pid):
        """Whether a process belongs to a slot of this minion: its own, or another process of a switch."""
        roles = RolesFile(self.slot.path("roles")).read()
        leaders = {self.slot.leader, *(roles.slots if roles else ())}
        return any(found in leaders or os.path.isdir(os.path.join(self.default_sock_dir, str(found))) for found in mantle.ancestors(pid))

    def keep_writable(self, path, content):
        """Write a file at a default place while there are rights, for the user that Salt becomes; `content` None: as it is."""
        owner = _owner(self.user)
        if content is None and not owner:
            return
        try:
            text = _read(path) if content is None else content
            if text is not None:
                _replace(path, text, owner)
        except OSError as error:
            log.warning("sidle-guard: cannot write %s: %s", path, error)

    def _choose(self, opts):
        """Choose the paths, or set the reason why that is impossible."""
        default = opts["sock_dir"]
        own = os.path.join(default, str(self.slot.leader))
        # As in salt.transport's `_minion_hash`.
        name = hashlib.new(opts.get("hash_type") or "sha256", opts["id"].encode()).hexdigest()[:10]
        sockets = tuple(f"minion_event_{name}_{end}.ipc" for end in ("pub", "pull"))
        longest = max(len(os.fsencode(os.path.join(own, socket))) for socket in sockets)
        if opts.get("master_type") == "disable":
            self.refused = "master_type is disable: there is no master to prove it with"
        elif opts.get("ipc_mode") == "tcp":
            self.refused = "ipc_mode is tcp: two processes cannot have the same ports"
        elif opts.get("source_ret_port") or opts.get("source_publish_port"):
            self.refused = "source_ret_port or source_publish_port is set: two processes cannot connect from the same port"
        elif opts.get("resume_jobs_on_restart"):
            # No released Salt has it; one that does runs what the other process is still at.
            self.refused = "resume_jobs_on_restart is set: the new process would run the old one's jobs a second time"
        elif longest > LONGEST_SOCKET_PATH:
            self.refused = f"sock_dir is too long: {own} leaves no room for the names of sockets"
        if self.refused is not None:
            return
        if self.sock_dir is None:
            self.conf_file = opts.get("conf_file")
            self.loaded_signature = config_signature(self.conf_file, opts)
            self.default_sock_dir, self.sock_dir, self.sockets = default, own, sockets
            self.pidfile = self.slot.path(f"{self.slot.leader}.pid")
            self.default_pidfile = self.default_pidfile or opts.get("pidfile")

    def _is_main(self):
        """Salt's keep-alive parent reads the configuration, too, right after it has started the main process, and jobs may:
        neither may touch what the main process has made."""
        with_parent = "--disable-keepalive" not in sys.argv
        return (os.getppid() if with_parent else os.getpid()) == self.slot.leader

    def _prepare(self, user):
        """Make the directories and the pid file as root, before Salt becomes `user`."""
        # Also for a main that Salt's parent started again: what its predecessor left is no use.
        shutil.rmtree(self.sock_dir, ignore_errors=True)
        for path in (self.sock_dir, self.pidfile, mantle.beside(self.pidfile)):
            _unlink(path)
        directories = [self.default_sock_dir, self.sock_dir]
        directories += [self.slot.path(name) for name in ("claims", "slots", "handover")]
        owner = self.owner = _owner(user)
        for directory in directories:
            try:
                os.makedirs(directory, exist_ok=True)
                _give(directory, owner)
            except OSError as error:
                log.warning("sidle-guard: cannot prepare %s: %s", directory, error)
        if owner and self.slot.first_role == "active" and self.default_pidfile:
            # Later there is no right to make it in the directory, only to write into it.
            self.keep_writable(self.default_pidfile, f"{os.getpid()}\n")

    def give_to_user(self, path):
        """Give a file to the user that this process is about to become; never what a link leads to."""
        try:
            if self.owner and os.geteuid() == 0:
                os.chown(path, *self.owner, follow_symlinks=False)
        except OSError as error:
            log.warning("sidle-guard: cannot give %s to the minion's user: %s", path, error)

    def show(self):
        """Link the default paths to this process; gives whether all links are there."""
        complete = not self._held_by_another()
        for name in self.sockets if complete else ():
            way = os.path.join(str(self.slot.leader), name)
            link = os.path.join(self.default_sock_dir, name)
            if not os.path.exists(os.path.join(self.sock_dir, name)):
                complete = False
            elif _link(link) != way:
                temporary = os.path.join(self.default_sock_dir, f".{name}.{self.slot.leader}")
                _unlink(temporary)
                os.symlink(way, temporary)
                os.rename(temporary, link)
        for path, content in self._words():
            if _read(path) != content:
                self._say(path, content)
        return complete

    def _say(self, path, content):
        """Write such a file; where that is impossible, tell it once."""
        try:
            _write(path, content)
        except OSError as error:
            if path not in self._unwritable:
                log.warning("sidle-guard: cannot write %s: %s", path, error)
            self._unwritable.add(path)

    def _words(self):
        """The files at the default places that name this process, and what they say."""
        if not self.default_pidfile:
            return
        yield self.default_pidfile, f"{os.getpid()}\n"
        module = sys.modules.get("salt.utils.process")
        told = mantle.content(module) if module else None
        if told:
            yield mantle.beside(self.default_pidfile), told

    def hide(self):
        """At the end of this process: remove its links and its pid file from the default paths."""
        for name in self.sockets:
            link = os.path.join(self.default_sock_dir, name)
            if _link(link) == os.path.join(str(self.slot.leader), name):
                _unlink(link)
        for path, content in self._words():
            if _read(path) == content:
                _unlink(path)

    def sweep(self, slots):
        """Remove the directories of slots whose process is gone."""
        for name in _names(self.default_sock_dir):
            if name.isdecimal() and int(name) not in slots and int(name) != self.slot.leader:
                path = os.path.join(self.default_sock_dir, name)
                if start_time(int(name)) is None and os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
        for folder in ("slots", "handover"):
            for name in _names(self.slot.path(folder)):
                leader = name.removesuffix(".json")
                if leader.isdecimal() and int(leader) not in slots and start_time(int(leader)) is None:
                    _unlink(self.slot.path(folder, name))

    def bus_of(self, leader):
        """The directory of another slot's sockets."""
        return os.path.join(self.default_sock_dir, str(leader))


def wrap_config(module, paths):
    """Let `salt.config.minion_config` give the slot's paths."""
    original = module.minion_config
    paths.default_pidfile = _take_pidfile_argument(sys.argv)

    def minion_config(*arguments, **options):
        opts = original(*arguments, **options)
        try:
            if isinstance(opts.get("sock_dir"), str) and opts.get("__role") == "minion":
                paths.move(opts)
        except Exception:
            paths.refused = paths.refused or "the configuration could not be changed, see the minion's log"
            log.exception("sidle-guard: cannot change the configuration")
        return opts

    minion_config.original = original
    module.minion_config = minion_config


def _take_pidfile_argument(words):
    """Remove --pid-file from the command line, as it would overrule the configuration; gives its value."""
    for number, word in enumerate(words):
        if word == "--pid-file" and number + 1 < len(words):
            value = words[number + 1]
            del words[number:number + 2]
            return value
        if word.startswith("--pid-file="):
            del words[number]
            return word.partition("=")[2]
    return None


def _owner(user):
    """The ids to give files to, or None if they are right by themselves."""
    if os.getuid() != 0 or not user or user == "root":
        return None
    try:
        found = pwd.getpwnam(user)
        return found.pw_uid, found.pw_gid
    except KeyError:
        return None


def _give(path, owner):
    if owner:
        # Never through a link: the directory may be another user's.
        os.chown(path, *owner, follow_symlinks=False)


def _replace(path, content, owner=None):
    """Replace a file in one step, never through a link: the directory may be another user's."""
    temporary = f"{path}.{os.getpid()}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, content.encode())
        if owner:
            os.fchown(descriptor, *owner)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def _write(path, content):
    """Replace a file; where Salt runs as a user who has the file, but not its directory, write into it in one step: Salt may read it just now."""
    try:
        _replace(path, content)
    except PermissionError:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            longer = os.fstat(descriptor).st_size - len(content.encode())
            os.write(descriptor, content.encode() + b" " * max(longer, 0))
            os.ftruncate(descriptor, len(content.encode()))
        finally:
            os.close(descriptor)


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read(path):
    """Read such a file; None: there is none. Never through a link: what root has read may be written again for another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, LONGEST_FILE_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _unlink(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def _names(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []
