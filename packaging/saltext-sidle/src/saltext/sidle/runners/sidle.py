"""
Runner for ``sidle``: plans and drives rollouts over many minions, by jobs.

.. code-block:: bash

    salt-run sidle.plan 'web*' 3007.17-1
    salt-run sidle.rollout 'web*' 3007.17-1 canary=2 percents='[10, 50, 100]'
    salt-run sidle.rollouts
    salt-run sidle.resume web-3007.17-1-20261124-0912

A rollout is one file below ``rollouts`` (see below), which is written before each step. A runner that dies is followed by ``sidle.resume``, on this master
or on another one that has the file.

Configuration of the master, all optional:

.. code-block:: yaml

    sidle:
      rollouts: /var/lib/salt-sidle/rollouts   # default: sidle/rollouts below the master's cachedir
      package: salt-minion
      chunk: 200                               # so many minions are asked by one job
      answer_seconds: 20                       # and so long they are waited for

Copied instead of installed, this file needs the directory ``fleet`` of the extension two directories above it, as in the source.
"""

import contextlib
import fcntl
import json
import os
import sys
import time

import salt.client
import salt.utils.minions
import salt.version

try:
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.fleet import rollout as machine
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.fleet import rollout as machine

__virtualname__ = "sidle"

#: How often a rollout looks.
TICK_SECONDS = 2

DAY_SECONDS = 86400

#: How often offline minions of a rollout under way are asked whether they are back: one job for all of them.
OFFLINE_SECONDS = 60

#: What a host says of itself for a plan; grains come beside them.
QUESTIONS = ("sidle.status", "sidle.list", "sidle.rehearse", "grains.item")


def __virtual__():
    return __virtualname__


def _option(name, default):
    return (__opts__.get("sidle") or {}).get(name, default)


def _error(message):
    __context__["retcode"] = 1
    return {"error": message}


# --- the plan ----------------------------------------------------------------------------------------------------------


def plan(tgt, release, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, format="table"):
    """
    What a rollout would do: for each minion whether it goes, in which wave, and if not, why not. Changes nothing; each minion that has the release
    rehearses it.

    tgt, tgt_type
        As for a job. The target is resolved to ids, once

    canary
        How many minions are the first wave, spread over the families of operating systems; or a list of ids

    percents
        The share of all minions that has gone at the end of each wave [default: 10, 50, 100]

    by, order
        A grain by whose values the waves go instead, and their order

    format
        ``table`` or ``data``

    .. code-block:: bash

        salt-run sidle.plan 'web*' 3007.17-1
        salt-run sidle.plan 'G@os:Debian' 3007.17-1 tgt_type=compound by=site order='[lab, east]'
    """
    try:
        made = _plan(tgt, release, tgt_type, package, canary, percents, by, order, seed="")
    except planning.PlanError as error:
        return _error(str(error))
    return _table(made) if format == "table" else _data(made)


def _plan(tgt, release, tgt_type, package, canary, percents, by, order, seed):
    package = package or _option("package", "salt-minion")
    wanted = planning.Wanted(package, str(release), canary, percents or [10, 50, 100], by, order or [], seed)
    wanted.check()
    ids = _resolve(tgt, tgt_type)
    if not ids:
        raise planning.PlanError(f"cannot plan: no accepted key matches {tgt} ({tgt_type})")
    facts = _facts(ids, wanted)
    version = salt.version.__version__
    return planning.make(facts, wanted, {each: {"this one": version} for each in ids} if package.endswith("salt-minion") else {})


def _resolve(tgt, tgt_type):
    found = salt.utils.minions.CkMinions(__opts__).check_minions(tgt, tgt_type)
    return sorted(found["minions"])


def _facts(ids, wanted):
    grains = ["os_family", *([wanted.by] if wanted.by else [])]
    arguments = [[], [], [wanted.package, wanted.release], grains]
    facts = {}
    for each, answers in _ask(ids, list(QUESTIONS), arguments).items():
        status, releases, rehearsal, own = (answers.get(question) if isinstance(answers, dict) else None for question in QUESTIONS)
        own = own if isinstance(own, dict) else {}
        facts[each] = {
            **{name: value for name, value in own.items() if value != ""},
            "family": own.get("os_family") or "unknown",
            "unseen_days": 0,
            "status": _instance(status, wanted.package),
            "releases": [one for one in (releases or {}).get("releases", []) if one["package"] == wanted.package] if isinstance(releases, dict) else [],
            "rehearsal": rehearsal if isinstance(rehearsal, dict) else None,
        }
        # Only what is installed can be rehearsed: that it is not is known already.
        if facts[each]["status"] and wanted.release not in facts[each]["status"]["installed"]:
            facts[each]["rehearsal"] = None
    for each in set(ids) - set(facts):
        facts[each] = {"family": "unknown", "unseen_days": _unseen_days(each), "status": None}
    return facts


def _instance(status, package):
    if not isinstance(status, dict):
        return None
    return next((each for each in status.get("instances", []) if each["instance"] == package), None)


def _unseen_days(minion):
    """Days since the master has last cached something of it; 1 at least, for one that does not answer."""
    try:
        seen = os.stat(os.path.join(__opts__["cachedir"], "minions", minion, "data.p")).st_mtime
    except OSError:
        return 1
    return max(1, int((time.time() - seen) // DAY_SECONDS))


def _table(made):
    rows = [("minion", "runs", "wave", "what becomes of it")]
    for each, host in sorted(made.hosts.items(), key=lambda pair: (pair[1].wave is None, pair[1].wave, pair[0])):
        wave = "" if host.wave is None else ("canary" if host.wave == 0 and len(made.waves) > 1 else str(host.wave + 1))
        rows.append((each, host.running or "-", wave, "; ".join([host.verdict, *host.why, *host.notes])))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
    words = ", ".join(f"{made.count(verdict)} {verdict}" for verdict in ("go", "offline", "there", "refused", "gone") if made.count(verdict))
    return "\n".join([f"{made.package} {made.release}: {words}; waves of {', '.join(str(len(wave)) for wave in made.waves) or 'nobody'}", "", *lines])


def _data(made):
    return {
        "package": made.package,
        "release": made.release,
        "waves": made.waves,
        "hosts": {
            each: {"verdict": host.verdict, "why": host.why, "notes": host.notes, "running": host.running, "family": host.family, "wave": host.wave}
            for each, host in made.hosts.items()
        },
    }


# --- rollouts ----------------------------------------------------------------------------------------------------------


def rollout(
    tgt, release, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, source=None, splay="60s", name=None, **settings
):
    """
    Plans, and switches the minions wave by wave, until all have ended, or until too much goes wrong. Returns then; ``salt-run --async`` returns at once.

    source
        Where minions that lack the release take it from: ``salt://sidle/salt-minion-3007.17.sidle`` [default: their repository]

    splay
        Each minion waits a random time of at most this long

    name
        The rollout's name [default: of package, release and time]

    settings
        ``at_once``, ``per_minute``, ``budget``, ``family_budget``, ``soak_seconds``, ``patience_seconds``, ``order_seconds``, ``ask_seconds``,
        ``late_seconds``: docs/fleets.md

    .. code-block:: bash

        salt-run sidle.rollout 'web*' 3007.17-1 canary=2 budget=1% at_once=50
    """
    settings = {key: value for key, value in settings.items() if not key.startswith("__")}
    name = name or f"{package or _option('package', 'salt-minion')}-{release}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    try:
        if os.path.exists(_path(name)):
            return _error(f"cannot begin rollout {name}: there is one of this name")
        made = _plan(tgt, release, tgt_type, package, canary, percents, by, order, seed=name)
        if not made.waves:
            return _error(f"cannot begin a rollout: nobody goes\n{_table(made)}")
        record = machine.new(name, made, time.time(), **settings)
    except (planning.PlanError, machine.RolloutError) as error:
        return _error(str(error))
    record.update(source=source, splay=splay)
    return _drive(record)


def resume(name, again=False):
    """
    Goes on with a rollout: after a halt (what went wrong until now is accepted then, and counts no more), after its runner or its master has died, or
    for minions that were offline.

    again
        Minions that were refused, failed or were lost are tried once more

    .. code-block:: bash

        salt-run sidle.resume salt-minion-3007.17-1-20261124-091200 again=True
    """
    try:
        record = _read(name)
        own = machine.Rollout(record)
        if record["status"] == machine.HALTED:
            own.resume(again)
        elif record["status"] not in (machine.RUNNING, machine.LATE):
            return _error(f"cannot resume rollout {name}: it is {record['status']}")
    except machine.RolloutError as error:
        return _error(str(error))
    return _drive(record)


def take_up(minion):
    """
    For a reactor on ``salt/minion/*/start``: a minion that was offline during a rollout goes now, if all waves of the rollout are through.

    .. code-block:: yaml

        # /etc/salt/master.d/reactor.conf: reactor: [{'salt/minion/*/start': [/srv/reactor/sidle.sls]}]
        # /srv/reactor/sidle.sls
        take it up:
          runner.sidle.take_up:
            - minion: {{ data['id'] }}
    """
    found = {}
    for name, summary in rollouts().items():
        if summary.get("status") != machine.LATE:
            continue
        record = _read(name)
        if record["hosts"].get(minion, {}).get("state") == machine.OFFLINE:
            found[name] = _drive(record)
    return found


def abort(name, reason="aborted by a person"):
    """
    Orders no minion any more; switches under way end by themselves.

    .. code-block:: bash

        salt-run sidle.abort salt-minion-3007.17-1-20261124-091200
    """
    try:
        record = _read(name)
        machine.Rollout(record).abort(reason)
        with open(_path(name, "abort"), "w", encoding="utf-8") as file:
            file.write(reason)
        with _driving(name):
            record = _read(name)
            _abort(machine.Rollout(record))
            _write(record)
            _release(record, list(record["hosts"]))
    except _Driven:
        return f"rollout {name} will be aborted by the runner that drives it, within seconds"
    except machine.RolloutError as error:
        return _error(str(error))
    return _summary(record)


def rollouts():
    """
    The rollouts of this master.

    .. code-block:: bash

        salt-run sidle.rollouts
    """
    place = _place()
    names = sorted(entry[: -len(".json")] for entry in os.listdir(place) if entry.endswith(".json")) if os.path.isdir(place) else []
    found = {}
    for name in names:
        try:
            found[name] = _summary(_read(name))
        except machine.RolloutError as error:
            found[name] = {"error": str(error)}
    return found


def show(name):
    """
    A rollout with each of its minions.

    .. code-block:: bash

        salt-run sidle.show salt-minion-3007.17-1-20261124-091200
    """
    try:
        record = _read(name)
    except machine.RolloutError as error:
        return _error(str(error))
    return {**_summary(record), "failures": list(record["failures"].values()), "hosts": record["hosts"]}


def _claim(record):
    """
    Claims the minions that are to be switched, with the driver's epoch: each one refuses other rollouts then, and drivers of older epochs. One that does
    not hear of it is claimed by its order.
    """
    ids = [each for each, host in record["hosts"].items() if host["state"] in (machine.WAITING, machine.ORDERED)]
    return _ask(ids, "sidle.claim", [], kwarg={"rollout": record["id"], "epoch": record["epoch"], "package": record["package"]})


def _is_taken(answer):
    return isinstance(answer, dict) and answer.get("error", {}).get("class") == "conflict"


def _release(record, ids):
    # What belongs to another rollout refuses, and nothing else is asked: claims end by themselves, too.
    _ask(ids, "sidle.release", [], kwarg={"rollout": record["id"], "package": record["package"]})


class _Driven(machine.RolloutError):
    """Another runner of this master drives the rollout."""


@contextlib.contextmanager
def _driving(name):
    """One runner of a master drives a rollout; the lock goes with its process."""
    os.makedirs(_place(), mode=0o700, exist_ok=True)
    with open(_path(name, "lock"), "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise _Driven(f"rollout {name} is driven by process {file.read().strip() or '?'} of this master: `salt-run sidle.show {name}`") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _abort(own):
    """Takes up what a person has said meanwhile."""
    path = _path(own.record["id"], "abort")
    try:
        with open(path, encoding="utf-8") as file:
            reason = file.read()
    except FileNotFoundError:
        return
    own.abort(reason)
    os.remove(path)


def _drive(record):
    try:
        with _driving(record["id"]):
            return _driven(record)
    except machine.RolloutError as error:
        return _error(str(error))


def _driven(record):
    own = machine.Rollout(record)
    is_new = not os.path.exists(_path(record["id"]))
    if not is_new:
        # Each driver has an epoch of its own: the minions refuse a driver on another master that has an older copy of the record.
        record["epoch"] = max(record["epoch"], _read(record["id"])["epoch"]) + 1
    refusals = [f"{each}: {answer['error']['message']}" for each, answer in _claim(record).items() if _is_taken(answer)]
    if refusals:
        # The record stays as it was: what does not begin here leaves nothing behind.
        if is_new:
            _release(record, list(record["hosts"]))
        return _error("\n".join([f"cannot drive rollout {record['id']}: {len(refusals)} minions refuse it", *refusals]))
    _write(record)
    looked = 0.0
    while record["status"] in (machine.RUNNING, machine.LATE) or own.flying:
        _abort(own)
        if _read(record["id"])["epoch"] != record["epoch"]:
            return _error(f"rollout {record['id']} goes on at another master: `salt-run sidle.show {record['id']}`")
        if time.time() - looked > OFFLINE_SECONDS and record["status"] in (machine.RUNNING, machine.LATE):
            looked = time.time()
            _look_for_offline(own)
        orders, ask = own.next(time.time())
        # First on record, then done.
        _write(record)
        for each, answer in _order(record, orders).items():
            own.ordered(time.time(), each, answer)
        for each, status in _statuses(ask, record["package"]).items():
            own.saw(time.time(), each, status)
        _write(record)
        counts = own.counts()
        if record["status"] == machine.LATE and set(counts) & {machine.OFFLINE} and not set(counts) & {machine.ORDERED, machine.WAITING}:
            # Nobody waits for hosts that may be gone: `sidle.resume` and `sidle.take_up` take them up.
            break
        if record["status"] in (machine.RUNNING, machine.LATE) or own.flying:
            time.sleep(TICK_SECONDS)
    if record["status"] == machine.HALTED:
        # The minions stay claimed: the rollout goes on after `sidle.resume`.
        __context__["retcode"] = 1
    else:
        _release(record, [each for each, host in record["hosts"].items() if host["state"] != machine.OFFLINE])
    return _summary(record)


def _look_for_offline(own):
    offline = [each for each, host in own.record["hosts"].items() if host["state"] == machine.OFFLINE]
    for each in _statuses(offline, own.record["package"]):
        own.came_back(each)


def _order(record, ids):
    """Orders the switch; gives what each one answered."""
    hosts = record["hosts"]
    found = {}
    reason = f"rollout {record['id']}"
    switch = {"package": record["package"], "release": record["release"], "splay": record["splay"], "reason": reason}
    switch.update(rollout=record["id"], epoch=record["epoch"])
    lacking = [each for each in ids if hosts[each].get("lacks")]
    if lacking:
        # First into the store, then the order: a release that cannot be installed refuses the host.
        source = record["source"] or f"{record['package']}@{record['release']}"
        install = {"source": source, **({"release": record["release"]} if record["source"] else {})}
        for each, answer in _ask(lacking, "sidle.install", [], kwarg=install, seconds=record["settings"]["patience_seconds"]).items():
            if not isinstance(answer, dict) or "error" in answer:
                found[each] = _answer(answer)
            else:
                hosts[each]["lacks"] = False
    ready = [each for each in ids if not hosts[each].get("lacks")]
    for each, answer in _ask(ready, "sidle.switch", [], kwarg=switch).items():
        found[each] = _answer(answer)
    return found


def _answer(answer):
    if isinstance(answer, dict) and "code" in answer:
        return {"error": {"class": "nothing-to-do", "message": "nothing to do"}} if answer["code"] == 3 else answer
    return {"error": {"class": "failed", "message": f"the minion answered: {answer}"}}


def _statuses(ids, package):
    answers = _ask(ids, "sidle.status", [])
    found = {each: _instance(answer, package) for each, answer in answers.items()}
    return {each: status for each, status in found.items() if status}


def _ask(ids, function, arguments, kwarg=None, seconds=None):
    """
    Jobs to these minions, by lists of ids in chunks: a target of a job is never a nodegroup, which masters read differently. Gives what those answered
    that have answered in time.
    """
    found = {}
    chunk, seconds = _option("chunk", 200), seconds or _option("answer_seconds", 20)
    if not ids:
        return found
    with salt.client.LocalClient(mopts=__opts__) as client:
        for begun in range(0, len(ids), chunk):
            some = ids[begun : begun + chunk]
            told = client.cmd(some, function, arguments, timeout=seconds, tgt_type="list", kwarg=kwarg or {})
            # False: it did not answer.
            found.update({each: answer for each, answer in told.items() if answer is not False})
    return found


def _place():
    return _option("rollouts", os.path.join(__opts__["cachedir"], "sidle", "rollouts"))


def _path(name, kind="json"):
    if not name or "/" in name or name.startswith("."):
        raise machine.RolloutError(f"cannot use {name!r} as the name of a rollout")
    return os.path.join(_place(), f"{name}.{kind}")


def _read(name):
    path = _path(name)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise machine.RolloutError(f"cannot find rollout {name}: `salt-run sidle.rollouts` lists them") from None
    except ValueError as error:
        raise machine.RolloutError(f"cannot read {path}: {error}") from None


def _write(record):
    path = _path(record["id"])
    os.makedirs(_place(), mode=0o700, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def _summary(record):
    counts = machine.Rollout(record).counts()
    return {
        "rollout": record["id"],
        "release": record["release"],
        "status": record["status"],
        "why": record["why"],
        "wave": f"{record['wave'] + 1} of {record['waves']}",
        "counts": counts,
    }
