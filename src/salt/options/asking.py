"""What a release's Salt makes of a minion's configuration: one JSON object on standard output.

Takes the configuration directory; the root of an image in which all other paths are meant, "": none; the source of the guard's options.py, which
describes options.

  schema 1 · version · failure: null, or why Salt cannot load the configuration · problems: [text] of which Salt warns
  options: as the guard reports them · generated: how the id came about (null: it is configured; "file", "host", "function")
  id_file: where Salt keeps a generated id · digest: of all options that the files set, without the schedule that the minion writes itself
  files: [[path, [device, inode, size, mtime, ctime] or null]], all that the answer rests on; null: too many
"""

import hashlib
import io
import json
import logging
import os
import resource
import signal
import stat
import sys
import types

SECONDS_MAX, MEMORY_BYTES_MAX = 60, 1 << 30
# A pipe takes 65536 bytes at once, and nobody reads before the end.
ANSWER_LENGTH_MAX = 60000
TEXT_LENGTH_MAX, PROBLEMS_MAX = 600, 5
VALUES_MAX = 200000
OWN_SCHEDULE = "_schedule.conf"


class Failure(Exception):
    """Salt cannot load it, or the answer would be a guess."""


def bound():
    """End before long, whatever a file holds."""
    signal.alarm(SECONDS_MAX)
    for limit, value in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CPU, SECONDS_MAX)):
        resource.setrlimit(limit, (value, value))
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write("1000")
    except OSError:
        pass


class Seen:
    """All files and directories that Salt looks at, as they were just before."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        self.generated = self.id_file = self.denied = None

    def meant(self, path):
        """The path in the image."""
        path = os.path.abspath(os.fsdecode(path))
        if not self.root or path == self.root or path.startswith(self.root + os.sep):
            return path
        return self.root + path

    def note(self, path):
        """Note the state of a path, once; Salt's own files change with the release alone."""
        if path not in self.files and not path.startswith(sys.prefix + os.sep):
            try:
                found = os.stat(path)
                self.files[path] = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
            except OSError:
                self.files[path] = None
        return path

    def listen(self):
        """Be asked before Salt opens or lists something."""
        import glob

        import salt.utils.files

        fopen, match, scandir, lexists = salt.utils.files.fopen, glob.glob, os.scandir, os.path.lexists

        def opened(name, *arguments, **options):
            mode = (arguments or (options.get("mode", "r"),))[0]
            path = self.meant(name)
            if any(letter in mode for letter in "wax+"):
                raise Failure(f"Salt would write {path} at its start")
            if os.path.basename(path) == "minion_id":
                self.id_file, self.generated = os.path.abspath(name), "file"
            if not os.path.isfile(self.note(path)) and os.path.exists(path):
                raise Failure(f"cannot read {path}: it is no file")
            return fopen(path, *arguments, **options)

        def listed(path, *more):
            try:
                return scandir(path if isinstance(path, int) else self.note(os.path.abspath(os.fsdecode(path))), *more)
            except PermissionError as error:
                # Python's glob goes on as if nothing were there.
                self.denied = error
                raise

        def exists(path):
            return lexists(self.note(os.path.abspath(os.fsdecode(path))))

        def matched(pattern, *arguments, **options):
            os.scandir, os.path.lexists = listed, exists
            try:
                return match(self.meant(pattern), *arguments, **options)
            finally:
                os.scandir, os.path.lexists = scandir, lexists

        salt.utils.files.fopen, glob.glob = opened, matched


def readable(path):
    """Whether the file is there; raises where Salt would go on with its defaults because it may not read it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Failure(f"cannot read {path}: it is no file")
        with open(path, "rb"):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def load(directory, seen):
    """The options, and those that files set."""
    import salt.config
    import salt.utils.network

    config, overrides = salt.config, {}
    apply, generate = config.apply_minion_config, salt.utils.network.generate_minion_id

    def applied(found=None, *more, **named):
        overrides.update(found or {})
        return apply(found, *more, **named)

    def of_host():
        seen.generated = "host"
        return generate()

    def of_function(opts):
        seen.generated = "function"
        if opts.get("append_minionid_config_dirs"):
            raise Failure("its directories are named by id_function, which only the minion itself may call")
        return "unknown"

    config.apply_minion_config, salt.utils.network.generate_minion_id, config.call_id_function = applied, of_host, of_function
    # What sdb:// stands for comes from elsewhere.
    config.apply_sdb = lambda opts, sdb_opts=None, *more: opts
    # A broken _schedule.conf is renamed by Salt: the minion's to do.
    os.replace = lambda *_: None
    path = os.path.join(directory, "minion")
    seen.note(path)
    if not readable(path) and os.path.isfile(seen.note(path + ".template")):
        raise Failure(f"Salt would make {path} of its template at its start")
    loaded = config.minion_config(path, ignore_config_errors=False)
    if seen.denied:
        raise seen.denied
    return loaded, overrides


def digest(overrides, generated_id):
    """The digest of the options that files set, and of a generated id."""
    fed, left = hashlib.sha256(), [VALUES_MAX]

    def feed(value):
        left[0] -= 1
        if left[0] < 0:
            # Aliases that grow without bound: what Salt has as one object would be told a million times.
            raise OverflowError
        if isinstance(value, dict):
            fed.update(b"{")
            for key in sorted(value, key=lambda key: (type(key).__name__, str(key))):
                feed(key)
                feed(value[key])
            fed.update(b"}")
        elif isinstance(value, (list, tuple)):
            fed.update(b"[")
            for item in value:
                feed(item)
            fed.update(b"]")
        else:
            fed.update(f"{type(value).__name__} {value!r}\n".encode("utf-8", "surrogatepass"))

    try:
        feed([overrides, generated_id])
    except OverflowError:
        return None
    return fed.hexdigest()


def without_own_schedule(directory, seen, overrides):
    """The options that files set, but for the schedule that the minion writes itself."""
    own = [path for path in seen.files if os.path.basename(path) == OWN_SCHEDULE]
    if not own:
        return overrides
    import salt.utils.files

    fopen = salt.utils.files.fopen

    def opened(name, *arguments, **options):
        return io.StringIO("") if os.path.basename(name) == OWN_SCHEDULE else fopen(name, *arguments, **options)

    salt.utils.files.fopen = opened
    return load(directory, seen)[1]


def asked(directory, seen, options, problems):
    """The answer; raises where there is none."""
    import salt.version

    answer = {"version": salt.version.__version__}
    seen.listen()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: problems.append(bounded(record.getMessage()))
    logging.getLogger("salt").addHandler(handler)
    opts, overrides = load(directory, seen)
    for name in options.PATHS:
        if str(opts.get(name)).startswith("sdb://"):
            raise Failure(f"{name} is {opts[name]}: only the running minion looks that up")
    generated = seen.generated
    answer.update(options=options.described(opts), generated=generated, id_file=seen.id_file)
    own = without_own_schedule(directory, seen, overrides)
    answer["digest"] = digest(own, opts.get("id") if generated else None)
    return answer


def bounded(text):
    """One line of bearable length."""
    text = " ".join(str(text).split())
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def fitting(answer):
    """The answer as text that fits: without files it is not kept, and without options it is none."""
    for less in ({}, {"files": None}, {"options": None, "failure": "its options are longer than sidle can take", "problems": []}):
        answer.update(less)
        text = json.dumps(answer)
        if len(text) <= ANSWER_LENGTH_MAX:
            break
    return text


def main(directory, root, source):
    """Ask, and print the answer."""
    output = os.dup(1)
    os.dup2(2, 1)
    os.chdir("/")
    bound()
    seen, problems, failure, answer = Seen(root), [], None, {}
    options = types.ModuleType("options")
    exec(source, options.__dict__)
    try:
        answer = asked(directory, seen, options, problems)
    except Failure as error:
        failure = bounded(error)
    except SystemExit as error:
        failure = problems[-1] if problems else f"Salt would end with exit code {error.code}"
    except BaseException as error:  # noqa: BLE001 - whatever Salt raises is the answer.
        failure = bounded(f"{type(error).__name__}: {error}")
    problems = list(dict.fromkeys(problems))[:PROBLEMS_MAX]
    answer = {**answer, "schema": 1, "failure": failure, "problems": problems, "files": list(seen.files.items())}
    os.write(output, fitting(answer).encode("ascii"))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
