"""
Execution module for ``sidle``: install, switch, roll back and watch the releases of this host's agents.

Every function returns what ``sidle --json`` prints, with its exit code under ``code``; a failure has ``error`` with ``class``, ``code``,
``message`` and ``hint``. The return code of the job is the exit code, except for 3 (nothing to do) and 4 (the switch goes on without this job):
these are successes, and the return code is 0.

No function waits for the end of the job in which it runs: a switch of the minion that runs the job goes on after the job has returned. Follow it
with ``sidle.status``, the beacon ``sidle``, or the runner.

With ``test=True`` (or the minion's ``test: True``), what changes a host only says what it would do.

Configuration of the minion, all optional:

.. code-block:: yaml

    sidle:
      program: /usr/bin/sidle    # default: found in PATH, /usr/bin or /usr/local/bin
      root: /                    # as ``sidle --root``
      package: salt-minion       # what the functions are about if no package is named
      repository: salt://sidle/repo    # what install and upgrade take releases from, if not from the settings of sidle
      rate: 2M                   # most bytes a second that this host takes of a repository on the file server (salt://)
"""

import datetime
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time

import salt.exceptions
import salt.fileclient
import salt.utils.stringutils
import salt.utils.url

__virtualname__ = "sidle"

__func_alias__ = {"list_": "list"}

#: Where the program is if PATH lacks it: sudo, cron and old units have short ones.
PLACES = ("/usr/bin/sidle", "/usr/local/bin/sidle")

#: Exit codes that are no failures: done, nothing to do, goes on without the command.
SUCCESSES = (0, 3, 4)

#: What the verbs take that begin a switch, beside what their functions name.
SWITCH_OPTIONS = (
    "instance", "mode", "deadline", "reason", "force", "at_window", "outside_window", "splay", "force_place",
    "rollout", "epoch",
)  # fmt: skip

#: The exit code of sidle for settings that it cannot read.
UNREADABLE = 2

#: The exit code of a shell that finds no such program.
ABSENT = 127

#: What the minion's log says of each job: 3006.30, 3007.17, 3008.5.
LOGGED = ("Executing command", "Returning information for job", "failed to return the job")

#: So much of the end of the log is read.
LOG_BYTES = 4 << 20

#: A claim of a job is deleted after an hour.
CLAIM_SECONDS = 3600

#: Where Salt keeps queued jobs, by its releases.
QUEUES = ("queues/*/*_queue", "*_queue")

#: Between these phases of a switch no process hears jobs, unless its mode is overlap.
DOWN, UP = "stopping", ("probation", "rolled-back", "committed")

#: What stands for the file server on sidle's command line: it asks this module for the files.
STDIO = "stdio:"

#: Least rate, bytes a second: at less the chunks of the file server (256 KiB) take longer than sidle waits.
RATE_MINIMUM = 16 << 10

#: How often the master is asked for a chunk, and how many seconds it has for each answer: sidle waits 30 s for the two of them.
TRIES, TRY_SECONDS = 2, 12

#: Most bytes of sidle's messages that are kept.
MESSAGES_MAXIMUM = 64 << 10


def __virtual__():
    # Without the program, too: a state may install it later in the same run. Until then each function returns an error that says so.
    return __virtualname__


def _option(name, default=None):
    return __salt__["config.get"](f"sidle:{name}", default)


def _program():
    named = _option("program")
    if named:
        return named if os.access(named, os.X_OK) else None
    found = shutil.which("sidle")
    return found or next((place for place in PLACES if os.access(place, os.X_OK)), None)


def _package(package):
    return package or _option("package", "salt-minion")


def _words(options):
    """Options as words of a command line. Each value stays in the word of its option, so that none is taken for an option itself."""
    words = []
    for name, value in options.items():
        if value is None or value is False or value == []:
            continue
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        else:
            words.extend(f"{option}={each}" for each in (value if isinstance(value, list) else [value]))
    return words


def _failed(message, hint, code=1, kind="failed"):
    return _told({"code": code, "error": {"class": kind, "code": code, "message": message, "hint": hint}})


def _rate(text):
    """Bytes a second of ``2M``, ``500K`` or a number; None: no limit."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", str(text).strip())
    rate = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not rate:
        raise ValueError(f"cannot use the rate {text}: it is no number of bytes a second, as 2M or 500K")
    return max(rate, RATE_MINIMUM)


def _places(repository, rate):
    """The repositories as sidle's command line names them, the one of them that is on the file server, and its rate."""
    named = [repository] if isinstance(repository, str) else list(repository or [])
    served = [place for place in named if place.startswith("salt://")]
    if len(served) > 1:
        raise ValueError(f"cannot use {' and '.join(served)}: only one repository may be on the file server")
    if rate is not None and not served:
        raise ValueError("cannot use rate: no repository is on the file server (salt://)")
    rate = _rate(_option("rate") if rate is None else rate) if served else None
    return [STDIO if place in served else place for place in named], next(iter(served), None), rate


class _Files:
    """
    Files below a directory of the file server, chunk by chunk as the server gives them. Nothing is written to the minion's cache. Works for the
    master and for ``file_client: local``, and for each kind of file server.
    """

    def __init__(self, place):
        path, saltenv = salt.utils.url.parse(place)
        self.directory = path.strip("/")
        self.saltenv = saltenv or __opts__.get("saltenv") or "base"
        self.client = salt.fileclient.get_file_client(__opts__)

    def chunk(self, name, begin):
        """The bytes from ``begin`` on, as many as the server gives at once; None without such a file."""
        path = f"{self.directory}/{name}".lstrip("/")
        load = {"cmd": "_serve_file", "path": path, "saltenv": self.saltenv, "loc": begin}
        answer = self.client.channel.send(load, tries=TRIES, timeout=TRY_SECONDS, raw=True)
        if not isinstance(answer, dict):
            raise salt.exceptions.SaltClientError(f"the file server refuses {path}")
        answer = salt.fileclient.decode_dict_keys_to_str(answer)
        # An empty file, and the end of a file, still have a name. gitfs gives text as text.
        return salt.utils.stringutils.to_bytes(answer["data"] or b"") if answer.get("dest") else None

    def close(self):
        destroy = getattr(self.client, "destroy", None)
        if destroy:
            destroy()


def _answer(request, files, rate, pipe):
    """Answers one request of sidle (docs/formats.md: a repository over standard input and output)."""
    begin = request.get("from", 0)
    try:
        data = files.chunk(request["ask"], begin)
    except (salt.exceptions.SaltException, OSError) as error:
        pipe.write(json.dumps({"error": str(error) or type(error).__name__}).encode() + b"\n")
        return
    if data is None:
        pipe.write(b'{"absent":true}\n')
        return
    wanted = data[: request.get("to", request.get("maximum", 0)) - begin]
    pipe.write(json.dumps({"bytes": len(wanted)}).encode() + b"\n")
    # A second's worth at a time: a slow rate must not look like silence.
    step = rate or len(wanted) or 1
    for at in range(0, len(wanted), step):
        piece = wanted[at : at + step]
        pipe.write(piece)
        pipe.flush()
        if rate:
            time.sleep(len(piece) / rate)
    if rate:
        # The master has sent these, too.
        time.sleep((len(data) - len(wanted)) / rate)


def _collect(stream, into):
    for line in stream:
        if sum(map(len, into)) < MESSAGES_MAXIMUM:
            into.append(line)


def _carry(command, place, rate):
    """Runs sidle, and answers its requests from the file server; returns what ``cmd.run_all`` returns."""
    said, messages = b"", []
    files = _Files(place)
    # The pipe's end is its leash: if this job is killed, standard input ends, and sidle with it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reader = threading.Thread(target=_collect, args=(process.stderr, messages), daemon=True)
    reader.start()
    try:
        for line in process.stdout:
            request = json.loads(line) if line.startswith(b"{") else {}
            if "ask" not in request:
                said = line
                continue
            try:
                _answer(request, files, rate, process.stdin)
                process.stdin.flush()
            except BrokenPipeError:
                # It needs no more; its last line says why.
                continue
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        files.close()
        reader.join()
        process.stdout.close()
        process.stderr.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
    code = process.returncode
    return {"stdout": said.decode(), "stderr": b"".join(messages).decode(errors="replace"), "retcode": code}


def _run(verb, operands=(), given=None, repository=None, rate=None, **options):
    """What the program says; ``given`` is what a caller gave by name."""
    # Salt adds names of its own.
    given = {name: value for name, value in (given or {}).items() if not name.startswith("__")}
    unknown = ", ".join(sorted(set(given) - set(SWITCH_OPTIONS)))
    if unknown:
        return _failed(f"sidle.{verb} has no option {unknown}", f"the options are: {', '.join(SWITCH_OPTIONS)}", 2, "usage")
    program = _program()
    if program is None:
        return _failed(
            f"cannot run sidle {verb}: this host has no program sidle",
            "install the package sidle, or name the program: `sidle: {program: …}` in the minion's configuration",
            ABSENT,
        )
    command = [program, "--json"]
    root = _option("root", "/")
    if root != "/":
        command.append(f"--root={root}")
    try:
        options["repository"], served, rate = _places(repository, rate)
    except ValueError as error:
        return _failed(str(error), "`salt MINION sys.doc sidle.install` shows the forms", 2, "usage")
    command += [*verb.split(), *_words({**options, **given}), "--", *(str(operand) for operand in operands if operand is not None)]
    if served:
        ran = _carry(command, served, rate)
    else:
        ran = __salt__["cmd.run_all"](command, python_shell=False, ignore_retcode=True, output_loglevel="quiet")
    try:
        answer = json.loads(ran["stdout"])
    except ValueError:
        said = (ran["stderr"] or ran["stdout"]).strip()
        return _failed(said or f"sidle {verb} said nothing", None, ran["retcode"] or 1)
    answer.pop("schema", None)
    error = answer.get("error")
    if served and error and "standard input: " in error["message"]:
        # Sidle knows this module by its pipe alone.
        error["message"] = error["message"].replace("standard input: ", f"{served}: ", 1)
        error["hint"] = f"`salt-run fileserver.file_list` on the master has to list metadata/timestamp.json below {served}; fetched parts are kept"
    return _told({"code": ran["retcode"], **answer})


def _told(answer):
    if answer["code"] not in SUCCESSES:
        __context__["retcode"] = answer["code"]
    return answer


def _dry(test):
    return bool(__opts__.get("test")) if test is None else bool(test)


def _moving(verb, operands, wait, test, given, **options):
    """A verb that begins a switch."""
    dry = _dry(test)
    return _run(verb, operands, given, dry_run=dry, no_wait=not wait and not dry, **options)


def version():
    """
    The version of the program, or None.

    .. code-block:: bash

        salt '*' sidle.version
    """
    program = _program()
    if program is None:
        return None
    said = __salt__["cmd.run_stdout"]([program, "--version"], python_shell=False, ignore_retcode=True)
    return said.split()[1] if len(said.split()) > 1 else None


def status(package=None, instance=None):
    """
    The current, installed and running releases, and the switch under way. Code 4 while a switch is under way.

    package
        The package [default: all]

    .. code-block:: bash

        salt '*' sidle.status
    """
    return _run("status", [package], instance=instance)


def list_(package=None):
    """
    The installed releases.

    .. code-block:: bash

        salt '*' sidle.list
    """
    return _run("list", [package])


def history(package=None, instance=None, number=None):
    """
    Past switches of an instance.

    number
        Only the switch of this number, with each of its steps

    .. code-block:: bash

        salt web17 sidle.history
        salt web17 sidle.history number=12
    """
    return _run("history", [_package(package)], instance=instance, id=number)


def doctor(package=None, instance=None):
    """
    Checks of this host, each finding with its remedy.

    .. code-block:: bash

        salt '*' sidle.doctor
    """
    return _run("doctor", [package], instance=instance)


def install(source=None, release=None, repository=None, rate=None, refetch=None, force_place=None, test=None):
    """
    Installs a release beside those that are there; the running release stays as it is.

    source
        A package of the repository (``salt-minion``, ``salt-minion@3007.17-1``), a bundle file on this host, or a bundle on the master:
        ``salt://sidle/salt-minion-3007.17.sidle``. A bundle of the master is copied into the minion's cache, and is deleted from there after a
        success [default: the package]

    release
        The release, if there are several [default: the newest that fits this host]

    repository
        A URL, or a list of URLs, which are asked in this order. ``salt://sidle/repo`` (with ``?saltenv=…``, where it is not the minion's) is a
        directory of the file server that ``sidle mirror`` wrote: only missing parts are fetched, and nothing is written to the minion's cache.
        One of a list may be on the file server [default: ``sidle: {repository: …}`` in the minion's configuration or pillar, else the settings
        of sidle]

    rate
        The most bytes a second that this host takes of a repository on the file server: ``2M``, ``500K``; less than ``16K`` counts as
        ``16K`` [default: ``sidle: {rate: …}`` in the minion's configuration, or no limit]

    refetch
        Ask even repositories that served wrong bytes of this release before

    .. code-block:: bash

        salt '*' sidle.install
        salt '*' sidle.install salt-minion@3007.17-1 repository=salt://sidle/repo rate=2M
        salt '*' sidle.install salt://sidle/salt-minion-3007.17.sidle
    """
    source = source or _package(None)
    cached = None
    if source.startswith("salt://"):
        cached = __salt__["cp.cache_file"](source)
        if not cached:
            return _failed(
                f"cannot install {source}: the master does not serve this file",
                "`salt-run fileserver.file_list` on the master lists its files",
            )
    answer = _run(
        "install",
        [cached or source],
        release=release,
        repository=None if cached else repository or _option("repository"),
        rate=rate,
        refetch=refetch,
        force_place=force_place,
        dry_run=_dry(test),
    )
    if cached and not _dry(test) and answer["code"] in SUCCESSES:
        # The store has the files now; the cache would have them twice.
        os.remove(cached)
    return answer


def switch(package=None, release=None, wait=False, test=None, **options):
    """
    Switches an instance to an installed release.

    release
        The release [default: the newest installed]

    wait
        Wait for the end of the switch. A switch of the minion that runs this job never waits: it goes on after the job

    options
        ``instance``, ``mode`` (overlap, idle, now), ``deadline``, ``reason``, ``force``, ``at_window``, ``outside_window``, ``splay``,
        ``rollout``, ``epoch``: as the options of ``sidle switch``

    .. code-block:: bash

        salt '*' sidle.switch release=3007.17-1 splay=10m reason='CVE'
    """
    return _moving("switch", [_package(package), release], wait, test, options)


def rehearse(package=None, release=None, **options):
    """
    What a switch to this release would do: the checks, the refusals and the rehearsal of the real one. The release loads this host's configuration
    and modules beside the running minion, without a master; modules that would be lost are a refusal, or among the notes. Changes nothing.

    .. code-block:: bash

        salt '*' sidle.rehearse release=3007.17-1
    """
    return _run("switch", [_package(package), release], options, dry_run=True, rehearse=True)


def upgrade(source=None, repository=None, rate=None, refetch=None, wait=False, test=None, **options):
    """
    Installs a release and switches to it.

    source
        A package of the repository, or a bundle file on this host [default: the package]

    repository, rate, refetch
        As for ``sidle.install``

    .. code-block:: bash

        salt '*' sidle.upgrade salt-minion@3007.17-1 splay=10m
    """
    more = {"repository": repository or _option("repository"), "rate": rate, "refetch": refetch}
    return _moving("upgrade", [source or _package(None)], wait, test, options, **more)


def rollback(package=None, release=None, wait=False, test=None, **options):
    """
    Switches an instance back to its previous release, or to a named release.

    .. code-block:: bash

        salt '*' sidle.rollback reason='pillar does not compile'
    """
    return _moving("rollback", [_package(package), release], wait, test, options)


def restart(package=None, if_changed=None, wait=False, test=None, **options):
    """
    Restarts the current release, without losing a job: how a changed configuration is loaded.

    .. code-block:: bash

        salt '*' sidle.restart if_changed=True
    """
    return _moving("restart", [_package(package)], wait, test, options, if_changed=if_changed)


def cancel(package=None, instance=None, test=None):
    """
    Cancels the switch under way, before the new release becomes current.

    .. code-block:: bash

        salt web17 sidle.cancel
    """
    return _run("cancel", [_package(package)], instance=instance, dry_run=_dry(test))


def hold(package=None, instance=None, reason=None, until=None, lasting=None, rollbacks_too=None, test=None):
    """
    Holds an instance at its release: switch, upgrade and restart are refused (code 10), a rollback is allowed.

    until
        The end of the hold: ``2026-12-24``, ``2026-12-24T07:00:00Z``

    lasting
        How long it lasts, instead of its end: ``2h``, ``7d``

    rollbacks_too
        Refuse rollbacks, too

    .. code-block:: bash

        salt 'db*' sidle.hold reason='end of the year' until=2027-01-04
    """
    return _run(
        "hold",
        [_package(package)],
        instance=instance,
        reason=reason,
        until=until,
        all=rollbacks_too,
        for_=lasting,
        dry_run=_dry(test),
    )


def unhold(package=None, instance=None, test=None):
    """
    Ends a hold.

    .. code-block:: bash

        salt 'db*' sidle.unhold
    """
    return _run("unhold", [_package(package)], instance=instance, dry_run=_dry(test))


def claim(rollout, epoch, package=None, instance=None, lasting=None, test=None):
    """
    Claims an instance for a rollout: orders of another rollout, and of an older epoch, are refused (code 12). The runner does this.

    .. code-block:: bash

        salt web17 sidle.claim r1 epoch=1
    """
    return _run(
        "rollout claim", [_package(package), rollout], epoch=epoch, instance=instance, for_=lasting, dry_run=_dry(test)
    )


def unclaim(rollout, package=None, instance=None, test=None):
    """
    Ends the claim of a rollout.

    .. code-block:: bash

        salt web17 sidle.unclaim r1
    """
    return _run("rollout unclaim", [_package(package), rollout], instance=instance, dry_run=_dry(test))


def verify(package=None, release=None, full=None):
    """
    Compares the files of a release (or all) with the signed manifest. Code 6: a file differs.

    full
        Hash every file, also files that look unchanged

    .. code-block:: bash

        salt '*' sidle.verify full=True
    """
    return _run("verify", [_package(package), release], full=full)


def repair(package=None, release=None, full=None, source=None, offline=None, repository=None, rate=None, refetch=None, test=None):
    """
    Repairs damaged files: from other releases, a bundle file (source) or the repository.

    offline
        Fetch nothing

    repository, rate, refetch
        As for ``sidle.install``

    .. code-block:: bash

        salt '*' sidle.repair
        salt '*' sidle.repair full=True repository=salt://sidle/repo
    """
    if source is None and not offline:
        repository = repository or _option("repository")
    return _run(
        "repair",
        [_package(package), release],
        full=full,
        from_=source,
        offline=offline,
        repository=repository,
        rate=rate,
        refetch=refetch,
        dry_run=_dry(test),
    )


def collect(package=None, keep=None, test=None):
    """
    Deletes old releases; keeps current, previous, each release in use, and the newest ``keep`` others.

    .. code-block:: bash

        salt '*' sidle.collect keep=1
    """
    return _run("collect", [package], keep=keep, dry_run=_dry(test))


def remove(package=None, release=None, test=None):
    """
    Deletes one release that is neither current, nor previous, nor in use.

    .. code-block:: bash

        salt '*' sidle.remove release=3006.30-1
    """
    return _run("remove", [_package(package), release], dry_run=_dry(test))


def trust():
    """
    What this host trusts: the fingerprint of the repository's first root, and the newest metadata.

    .. code-block:: bash

        salt '*' sidle.trust
    """
    return _run("trust show")


def pin(source, fingerprint, test=None):
    """
    Trusts the repository of this root.json.

    source
        A ``root.json`` or a bundle: on this host, or ``salt://…``

    fingerprint
        SHA-256 of the repository's ``1.root.json``, from its owner

    .. code-block:: bash

        salt '*' sidle.pin salt://sidle/1.root.json 3f1c…
    """
    cached = __salt__["cp.cache_file"](source) if source.startswith("salt://") else source
    return _run("trust pin", [cached or source], fingerprint=fingerprint, dry_run=_dry(test))


def check_settings(content):
    """
    None if sidle can read these settings (text of ``sidle.toml``), else what is wrong with them.

    .. code-block:: bash

        salt web17 sidle.check_settings 'keep_extra = 2'
    """
    path = __salt__["temp.file"](suffix=".toml", prefix="sidle")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        # Reads the settings, and changes nothing; whether there is something to collect is not asked.
        answer = _run("collect", config=path, dry_run=True)
        # What is asked here has an answer, also where the settings are wrong.
        __context__.pop("retcode", None)
    finally:
        os.remove(path)
    return answer["error"]["message"].replace(path, "the settings") if answer["code"] == UNREADABLE else None



def job(jid=None):
    """
    What this host knows of a job: whether the minion has received it, runs it, has queued it, or has returned it; and the switches since then. Reads
    only. The runner's function ``sidle.why`` asks this.

    .. code-block:: bash

        salt web17 sidle.job 20261124091200123456
    """
    jid, masters = str(jid or ""), __opts__.get("master_list") or __opts__.get("master")
    known = {
        "now": time.time(),
        "started": _started(os.getpid() if __opts__.get("multiprocessing") is False else os.getppid()),
        "master": __opts__.get("master"),
        "masters": masters if isinstance(masters, list) else [masters],
        "cache_jobs": bool(__opts__.get("cache_jobs")),
        **_logged(jid),
        **_switches(),
    }
    if re.fullmatch(r"[\w.-]+", jid):
        cache = __opts__["cachedir"]
        known["claimed"] = _claimed(jid)
        known["stale"] = _stale(os.path.join(cache, "proc", jid))
        known["cached"] = os.path.exists(os.path.join(cache, "minion_jobs", jid, "return.p"))
        queued = (glob.glob(os.path.join(cache, queue, f"queued_*_{jid}.p")) for queue in QUEUES)
        known["queued"] = next((paths[0] for paths in queued if paths), None)
    return known


def _started(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="ascii") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _published(jid):
    try:
        return datetime.datetime.strptime(jid[:20] + "+0000", "%Y%m%d%H%M%S%f%z").timestamp()
    except ValueError:
        return None


def _claimed(jid):
    """Whether a process has claimed the job; None: that is not known, or no longer."""
    gate = os.path.join(_option("root", "/"), "run/sidle", _package(None), "gate")
    names = (hashlib.sha256(f"{peer}\n{jid}".encode()).hexdigest()[:32] for peer in ("any", __opts__.get("master_uri")))
    if any(os.path.exists(os.path.join(gate, "claims", name)) for name in names):
        return True
    try:
        # Only claims from before show that claims were made then, and are still there.
        since = min(entry.stat().st_mtime for entry in os.scandir(os.path.join(gate, "claims")))
    except (OSError, ValueError):
        return None
    published = _published(jid)
    return False if published and since < published and time.time() - published < CLAIM_SECONDS else None


def _stale(path):
    """The process of the job, if it is gone, and has left its file behind."""
    import salt.payload

    try:
        with open(path, "rb") as file:
            pid = salt.payload.loads(file.read())["pid"]
    except (OSError, KeyError, TypeError, ValueError, salt.exceptions.SaltException):
        # Empty, say, after a power cut.
        return None
    return None if os.path.exists(f"/proc/{pid}") else pid


def _logged(jid):
    """What the minion's log says of the job, since when it tells anything, and whether it names each job."""
    level = str(__opts__.get("log_level_logfile") or __opts__.get("log_level") or "warning")
    known = {"log": [], "log_since": None, "returned_at": None, "log_is_detailed": level in ("info", "profile", "debug", "trace", "garbage", "all")}
    try:
        with open(__opts__.get("log_file") or os.devnull, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return known
    times = (_logged_at(line) for line in lines)
    known["log_since"] = next((at for at in times if at), None)
    if jid:
        found = [line for line in lines if jid in line and any(words in line for words in LOGGED)]
        known["log"] = [line[:200] for line in found[-5:]]
        known["returned_at"] = next((_logged_at(line) for line in found if LOGGED[1] in line), None)
    return known


def _logged_at(line):
    try:
        return datetime.datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").timestamp()
    except ValueError:
        return None


def _switches():
    """The last switches with their downtimes, and how the last process that ended by itself ended."""
    if _program() is None:
        return {}
    past, now = _run("history", [_package(None)]), _run("status", [_package(None)])
    # What is asked here has an answer, also where there is none of this package.
    __context__.pop("retcode", None)
    found = next(iter(now.get("instances", [])), {})
    return {"switches": [_switch(each) for each in past.get("switches", [])[-5:]], "ended": (found.get("supervisor") or {}).get("ended")}


def _switch(switch):
    known = {name: switch[name] for name in ("id", "purpose", "to", "mode", "result")}
    known["begun"], known["ended"] = _seconds(switch["requested_at"]), _seconds(switch["story"][-1]["at"] if switch["story"] else switch["requested_at"])
    if switch["downtime_milliseconds"]:
        went = next((step["at"] for step in switch["story"] if step["to"] == DOWN), None)
        down = _seconds(went or switch["requested_at"])
        up = next((step["at"] for step in switch["story"] if step["to"] in UP), None)
        known["down"] = down
        known["up"] = max(down + switch["downtime_milliseconds"] / 1000, _seconds(up) if went and up else 0)
    return known


def _seconds(text):
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.datetime.strptime(f"{whole}+0000", "%Y-%m-%dT%H:%M:%S%z").timestamp() + float(f"0.{fraction or 0}")
