"""
Runner for ``sidle``: plans and drives rollouts over many minions, by jobs.

.. code-block:: bash

    salt-run sidle.plan 'web*' 3007.17-1
    salt-run sidle.rollout 'web*' 3007.17-1 canary=2 percents='[10, 50, 100]'
    salt-run sidle.rollouts
    salt-run sidle.resume web-3007.17-1-20261124-0912

A rollout is one file below ``rollouts`` (see below), which is written before each step. A runner that dies is followed by ``sidle.resume``, on this master
or on another one that has the file; ``sidle.go_on`` in the master's schedule does that by itself.

Configuration of the master, all optional:

.. code-block:: yaml

    sidle:
      rollouts: /var/lib/salt-sidle/rollouts   # default: sidle/rollouts below the master's cachedir
      files: /srv/sidle/plans                  # plans and pages that are written and read; default: sidle/files below the master's cachedir
      package: salt-minion
      chunk: 200                               # so many minions are asked by one job
      answer_seconds: 20                       # and so long they are waited for
      masters:                                 # what this master cannot know of the minions' other masters
        m2.example: {version: 3007.17, minimum_auth_version: 3}

Copied instead of installed, this file needs the directory ``fleet`` of the extension two directories above it, as in the source.
"""

import json
import logging
import os
import re
import sys
import time

try:
    from saltext.sidle.fleet import answers, asking, driver, jobs, names, page
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.fleet import rollout as machine
    from saltext.sidle.fleet import table as tables
    from saltext.sidle.fleet.bus import Away, Bus
    from saltext.sidle.fleet.files import FileError, Files
    from saltext.sidle.fleet.records import Driven, Records
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    from saltext.sidle.fleet import answers, asking, driver, jobs, names, page
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.fleet import rollout as machine
    from saltext.sidle.fleet import table as tables
    from saltext.sidle.fleet.bus import Away, Bus
    from saltext.sidle.fleet.files import FileError, Files
    from saltext.sidle.fleet.records import Driven, Records

__virtualname__ = "sidle"

log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def _option(name, default):
    return (__opts__.get("sidle") or {}).get(name, default)


def _error(message):
    return _failed({"error": message})


def _failed(answer):
    """The exit code of `salt-run` comes from here; the context has that of a state."""
    __context__["retcode"] = 1
    return {**answer, "retcode": 1}


# --- the plan ----------------------------------------------------------------------------------------------------------


def plan(
    tgt, release, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, format="table", source=None, at_window=None,
    name="", groups=None, verbose=None, file=None, sign_in=None
):  # fmt: skip
    """
    What a rollout would do: for each minion whether it goes, in which wave, and if not, why not. Changes nothing: each minion makes the dry run of
    the switch, and of the install if it lacks the release.

    tgt, tgt_type
        As for a job. The target is resolved to ids, once

    canary
        How many minions are the first wave, spread over the families of operating systems; or a list of ids

    percents
        The share of all minions that has gone at the end of each wave [default: 10, 50, 100]

    by, order
        A grain by whose values the waves go instead, and their order

    source, at_window
        As for ``sidle.rollout``. Of a bundle on the file server (``salt://….sidle``) nothing is fetched: room and platform are not checked then

    name
        The name of the rollout: the same name gives the same waves, as long as the same minions go

    groups
        Nodegroups or compound targets, a list, or ``True`` for all nodegroups of this master: which minions they would not reach. Each costs a job

    format
        ``table``, ``data``, or ``html``: one page without other files

    verbose
        A line for each minion in the table [default: for up to 20 minions]

    file
        Write it to this file of the directory ``files`` (see above) instead; ``data`` is written as JSON. ``html`` needs it

    sign_in
        The version of the sign-in of the release, if a packager has changed it

    .. code-block:: bash

        salt-run sidle.plan 'web*' 3007.17-1
        salt-run sidle.plan 'G@os:Debian' 3007.17-1 tgt_type=compound by=site order='[lab, east]'
        salt-run sidle.plan '*' 3007.17-1 groups=True format=html file=plan.html
    """
    if format not in ("table", "data", "html") or (format == "html" and not file):
        return _error("cannot give the plan in this format: formats are table, data and html; html needs a file, as in file=plan.html")
    try:
        if file:
            _files().path(file)
        made = _plan(tgt, release, tgt_type, package, canary, percents, by, order, str(name), source, at_window, groups, sign_in)
    except (planning.PlanError, FileError, Away) as error:
        return _error(str(error))
    if not file:
        return tables.table(made, verbose) if format == "table" else planning.write(made)
    if format == "html":
        text = page.render(made, f"{tgt} ({tgt_type})", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    else:
        text = tables.table(made, verbose) if format == "table" else json.dumps(planning.write(made), indent=1)
    try:
        path = _files().write(file, text + "\n")
    except FileError as error:
        return _error(str(error))
    return f"{made.package} {made.release}: {made.words()}; written to {path}"


def _plan(tgt, release, tgt_type, package, canary, percents, by, order, seed, source=None, at_window=None, groups=None, sign_in=None):
    package = package or _option("package", "salt-minion")
    wanted = planning.Wanted(package, str(release), canary, percents or [10, 50, 100], by, order or [], seed, sign_in)
    return asking.planned(asking.Asking(__opts__, _ask, source, at_window), wanted, (tgt, tgt_type), groups)


def _written_plan(name, tgt, release):
    """The plan in a file. Raises `plan.PlanError`, `files.FileError`."""
    if tgt is not None or release is not None:
        raise planning.PlanError("cannot use a target or a release beside a plan: the plan has them")
    text = _files().read(name)
    try:
        return planning.read(json.loads(text))
    except (ValueError, RecursionError) as error:
        if isinstance(error, planning.PlanError):
            raise
        raise planning.PlanError(f"cannot read the plan {name}: it is no JSON: `sidle.plan` writes it with format=data") from None


def _files():
    return Files(_option("files", os.path.join(__opts__["cachedir"], "sidle", "files")))


# --- rollouts ----------------------------------------------------------------------------------------------------------


def rollout(
    tgt=None, release=None, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, source=None, install_rate=None, splay="60s",
    at_window=None, name=None, despite_failures=False, test=False, plan=None, sign_in=None, **settings
):  # fmt: skip
    """
    Plans, and switches the minions wave by wave, until all have ended, or until too much goes wrong. Returns then; ``salt-run --async`` returns at once.

    plan
        Instead of a target and a release: a file that ``sidle.plan file=…`` wrote with ``format=data``. Its waves are rolled out. Each minion is asked again;
        those that do not go any more are left out, and nobody is added

    source
        Where minions that lack the release install it from: a bundle (``salt://sidle/salt-minion-3007.17.sidle``), a repository on the master's file
        server (``salt://sidle/repo``) or elsewhere (``https://…``); a list has one for each wave, and the last one for all later waves [default: the
        repository of each minion]

    install_rate
        With a repository on the file server: so many bytes a second all minions together take from it, at most: ``40M``

    splay
        Each minion waits a random time of at most this long

    at_window
        A minion outside its maintenance window waits for the next window; without this, it is refused

    name
        The rollout's name [default: of package, release and time]

    despite_failures
        Begin even if another rollout of this master found the release bad

    test
        Only show the plan

    sign_in
        As for ``sidle.plan``

    settings
        ``at_once``, ``per_minute``, ``install_at_once``, ``install_seconds``, ``budget``, ``family_budget``, ``soak_seconds``, ``patience_seconds``,
        ``order_seconds``, ``ask_seconds``, ``late_seconds``: docs/rollouts.md

    .. code-block:: bash

        salt-run sidle.rollout 'web*' 3007.17-1 canary=2 budget=1% at_once=50
        salt-run sidle.rollout plan=november.json budget=1%
    """
    settings = {key: value for key, value in settings.items() if not key.startswith("__")}
    try:
        old = _written_plan(plan, tgt, release) if plan else None
        if not old and (tgt is None or release is None):
            return _error("cannot begin a rollout of nothing: name a target and a release, or a plan, as in plan=november.json")
        package, release = (old.package, old.release) if old else (package or _option("package", "salt-minion"), release)
        names.package(package)
        names.release(str(release))
        name = names.rollout(str(name or "") or re.sub(r"[^A-Za-z0-9._-]", "-", f"{package}-{release}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"))
        if _records().has(name):
            return _error(f"cannot begin rollout {name}: there is a rollout of this name")
        if old:
            made = asking.planned_again(asking.Asking(__opts__, _ask, source, at_window), old, sign_in)
        else:
            made = _plan(tgt, release, tgt_type, package, canary, percents, by, order, name, source, at_window, sign_in=sign_in)
        known = None if despite_failures else _known_failure(made.package, made.release)
        if known:
            return _error(known)
        if test:
            return tables.table(made)
        if not made.waves:
            return _error(f"cannot begin a rollout: nobody goes\n{tables.table(made)}")
        record = machine.new(name, made, time.time(), **settings)
        if install_rate is not None:
            jobs.bytes_of(install_rate)
    except (planning.PlanError, machine.RolloutError, names.WrongName, FileError, Away) as error:
        return _error(str(error))
    record.update(source=source, install_rate=install_rate, splay=splay, at_window=at_window)
    return _drive(record)


def resume(name, again=False, take_over=False):
    """
    Goes on with a rollout: after a halt (what went wrong until now is accepted then, and counts no more), after its runner or its master has died, or
    for minions that were offline.

    again
        Minions that were refused, failed or were lost are tried once more, also where the release is marked as bad

    take_over
        This record is older than what the minions know: go on with it all the same. Make sure first that no other master drives the rollout

    .. code-block:: bash

        salt-run sidle.resume salt-minion-3007.17-1-20261124-091200 again=True
    """
    def prepare(record):
        if record["status"] == machine.HALTED:
            machine.Rollout(record).resume(again)
        elif record["status"] not in (machine.RUNNING, machine.LATE):
            raise machine.RolloutError(f"cannot resume rollout {name}: it is {record['status']}")
        if take_over:
            driver.take_newest_epoch(_ask, record)
        return True

    try:
        return _driven(str(name), prepare, is_resumed=True)
    except (machine.RolloutError, Away) as error:
        return _error(str(error))


def rollback(name, wave=None, test=False, **settings):
    """
    Takes the minions of a rollout back to the release that each of them ran before, as a rollout of its own, named ``NAME-back``. The rollout is aborted
    first; a runner that drives it has to be aborted before.

    wave
        Only the minions of this wave: 1 is the first one [default: all that are done]

    test
        Only show which minions go back

    settings
        As those of ``sidle.rollout`` [default: those of the rollout, and no soak time]

    .. code-block:: bash

        salt-run sidle.rollback salt-minion-3007.17-1-20261124-091200 wave=2
    """
    settings = {key: value for key, value in settings.items() if not key.startswith("__")}
    records, name = _records(), str(name)
    if not isinstance(wave, (int, type(None))):
        return _error("cannot roll back this wave: it is a number, 1 is the first one")
    try:
        with records.driving(name):
            former = records.read(name)
            driver.ask_unsure(_ask, former)
            number = 1 + sum(each.startswith(f"{name}-back") for each in records.names())
            suffix = "back" if number == 1 else f"back-{number}"
            only = None if wave is None else wave - 1
            record = machine.back(f"{name}-{suffix}", former, only, time.time(), **settings)
            stay = {
                each: host["state"] for each, host in former["hosts"].items() if machine.is_unsure(host) and only in (None, host["wave"])
            }  # fmt: skip
            if test:
                return {each: f"{host['from']} -> {host['to']}" for each, host in record["hosts"].items()} | {
                    each: f"stays as it is: {state}" for each, state in stay.items()
                }
            if former["status"] not in (machine.ENDED, machine.ABORTED):
                machine.Rollout(former).abort("rolled back by sidle.rollback")
            former["epoch"] += 1
            records.write(former)
            with _bus() as bus:
                driver.unclaim(bus, former, list(former["hosts"]))
    except (machine.RolloutError, Away) as error:
        return _error(str(error))
    record.update(splay=former.get("splay") or "60s", at_window=former.get("at_window"))
    answer = _drive(record)
    # Nobody knows what these run.
    return {**answer, "not_taken_back": stay} if stay else answer


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
    def is_awaited(record):
        return record["status"] == machine.LATE and record["hosts"].get(minion, {}).get("state") == machine.OFFLINE

    try:
        minion = names.minion(str(minion))
    except names.WrongName as error:
        return _error(str(error))
    return _driven_all(is_awaited)


def go_on():
    """
    Goes on with each rollout that nobody drives: after the death of its runner, or of this master. For the master's schedule. A halted rollout waits for a
    person.

    .. code-block:: yaml

        # /etc/salt/master.d/schedule.conf
        schedule:
          sidle:
            function: sidle.go_on
            minutes: 5
            maxrunning: 10
    """
    def has_work(record):
        in_progress = (machine.WAITING, *machine.FLYING_STATES)
        is_late = record["status"] == machine.LATE and any(host["state"] in in_progress for host in record["hosts"].values())
        return is_late or record["status"] == machine.RUNNING

    return _driven_all(has_work)


def pause(name, reason="paused by a person"):
    """
    Orders no minion until ``sidle.resume``; switches in progress end by themselves.

    .. code-block:: bash

        salt-run sidle.pause salt-minion-3007.17-1-20261124-091200
    """
    return _say(name, "pause", reason)


def abort(name, reason="aborted by a person"):
    """
    Ends a rollout: no minion is ordered any more; switches in progress end by themselves, and those that wait for a maintenance window are cancelled.

    .. code-block:: bash

        salt-run sidle.abort salt-minion-3007.17-1-20261124-091200
    """
    return _say(name, "abort", reason)


def _say(name, act, reason):
    """To the driver, or where nobody drives, into the record."""
    records, name, reason = _records(), str(name), answers.text(str(reason))
    try:
        record = records.read(name)
        getattr(machine.Rollout(record), act)(reason)
        records.ask_driver(name, act, reason)
        with records.driving(name):
            record = records.read(name)
            own, word = machine.Rollout(record), records.word(name)
            if word:
                driver.obey(own, *word)
            records.write(record)
            if record["status"] == machine.ABORTED:
                with _bus() as bus:
                    driver.unclaim(bus, record, list(record["hosts"]))
    except Driven:
        return f"the runner that drives rollout {name} hears of it within seconds"
    except (machine.RolloutError, Away) as error:
        return _error(str(error))
    return _summary(record)


def rollouts():
    """
    The rollouts of this master.

    .. code-block:: bash

        salt-run sidle.rollouts
    """
    records, found = _records(), {}
    for name in records.names():
        try:
            found[name] = _summary(records.read(name))
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
        record = _records().read(str(name))
    except machine.RolloutError as error:
        return _error(str(error))
    return {**_summary(record), "failures": list(record["failures"].values()), "hosts": record["hosts"]}


def why(minion, jid=None, format="text"):
    """
    Why a minion did not return: one cause with its evidence and its remedy, or which evidence is missing. Asks the minion; changes nothing.

    jid
        The job [default: the newest one that this minion should have answered, and did not]

    format
        ``text`` or ``data``

    .. code-block:: bash

        salt-run sidle.why web17
        salt-run sidle.why web17 20261124091200123456
    """
    from saltext.sidle.fleet import collect
    from saltext.sidle.fleet import why as reasons

    try:
        minion, known = names.minion(str(minion)), []
    except names.WrongName as error:
        return _error(str(error))
    records = _records()
    for name in records.names():
        try:
            known.append(records.read(name))
        except machine.RolloutError:
            # `sidle.rollouts` says what is wrong with it.
            continue
    found = collect.collect(__opts__, minion, str(jid) if jid else None, _option("answer_seconds", 15), known)
    answer = reasons.answer(found)
    return reasons.render(answer) if format == "text" else dict(vars(answer), minion=minion, jid=found.jid)


def _known_failure(package, release):
    """What another rollout of this master knows against the release: what is bad for a host there is not tried here before a person has looked."""
    records = _records()
    for name in records.names():
        record = records.read(name)
        if (record["package"], record["release"], record["purpose"]) != (package, release, machine.SWITCH):
            continue
        for failure in record["failures"].values():
            if failure["cause"] == "release" and not failure["accepted"]:
                return (
                    f"cannot begin a rollout of {release}: rollout {name} found it bad: {failure['text']} (on {', '.join(failure['hosts'])}); "
                    "despite_failures=True begins all the same"
                )
    return None


def _drive(record):
    """A new rollout."""
    records = _records()
    try:
        with records.driving(record["id"]), _bus() as bus:
            return _came_to(driver.drive(record, bus, records))
    except (machine.RolloutError, Away) as error:
        return _error(str(error))


def _driven(name, prepare, is_resumed=False):
    """Drives a rollout that is on record, if `prepare` says so; read when nobody else can change it any more."""
    records = _records()
    with records.driving(name), _bus() as bus:
        record, word = records.read(name), records.word(name)
        if word and (word[0] == "abort" or not is_resumed):
            # Said to a driver that has not heard it.
            driver.obey(machine.Rollout(record), *word)
            records.write(record)
            if record["status"] == machine.ABORTED:
                driver.unclaim(bus, record, list(record["hosts"]))
        if prepare(record):
            driver.drive(record, bus, records)
        return _came_to(record)


def _driven_all(has_work):
    """Drives each rollout that has work and no driver."""
    records, found = _records(), {}
    for name in records.names():
        try:
            if not has_work(records.read(name)):
                continue
            found[name] = _driven(name, has_work)
        except Driven:
            continue
        except (machine.RolloutError, Away) as error:
            found[name] = _error(str(error))
        except Exception as error:  # pylint: disable=broad-except
            # One that cannot be driven must not keep the others.
            log.exception("rollout %s", name)
            found[name] = _error(f"cannot drive rollout {name}: {error}")
    return found


def _came_to(record):
    return (_failed if record["status"] in (machine.HALTED, machine.ABORTED) else dict)(_summary(record))


def _bus():
    return Bus(__opts__, _option("chunk", 200))


def _ask(ids, function, arguments=(), kwarg=None, seconds=None, **options):
    """What those minions answer that answer in time. `options`: those of `Bus.ask`."""
    if not ids:
        return {}
    with _bus() as bus:
        return bus.ask(list(ids), function, arguments, kwarg, seconds or _option("answer_seconds", 20), **options)


def _records():
    place = _option("rollouts", os.path.join(__opts__["cachedir"], "sidle", "rollouts"))
    return Records(place, os.path.join(__opts__["sock_dir"], "sidle"))


def _summary(record):
    own = machine.Rollout(record)
    return {
        "rollout": record["id"],
        "purpose": record["purpose"],
        "release": record["release"],
        "status": record["status"],
        "why": record["why"],
        "wave": f"{record['wave'] + 1} of {record['waves']}",
        "counts": own.counts(),
    }
