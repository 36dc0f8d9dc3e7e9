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
      masters:                                 # instead of what ``sidle.masters`` hears of the minions' other masters
        m2.example: {version: 3007.17, minimum_auth_version: 3}

Copied instead of installed, this file needs the directory ``fleet`` of the extension two directories above it, as in the source.
"""

import os
import sys

try:
    import saltext.sidle.fleet.rollouts  # noqa: F401
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from saltext.sidle.fleet import missing as silence
from saltext.sidle.fleet import names, shown, states
from saltext.sidle.fleet import plan as planning
from saltext.sidle.fleet import rollouts as own_rollouts
from saltext.sidle.fleet import wanted as wanting

__virtualname__ = "sidle"


def __virtual__():
    return __virtualname__


def _rollouts():
    return own_rollouts.Rollouts(__opts__, globals().get("__user__"))


def _answered(work):
    """Returns what the work returns, or why it failed. The exit code of `salt-run` comes from the answer, that of a state from the context."""
    try:
        answer = work()
    except (*own_rollouts.ERRORS, silence.MissingError) as error:
        answer = own_rollouts.failed(error)
    if isinstance(answer, dict) and answer.get("retcode"):
        __context__["retcode"] = 1
    return answer


def _continued(has_work, act):
    """Continues each rollout that has work and no driver."""
    found = _rollouts().continue_all(has_work, act)
    if any(answer.get("retcode") for answer in found.values()):
        __context__["retcode"] = 1
    return found


def _settings(given):
    """Returns the settings of a rollout without what Salt adds to the arguments of a function."""
    return {key: value for key, value in given.items() if not key.startswith("__")}


# --- the plan ----------------------------------------------------------------------------------------------------------


def plan(
    tgt, release, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, format="table", source=None, at_window=None,
    name="", groups=None, verbose=None, file=None, sign_in=None, outside_window=None
):  # fmt: skip
    """
    Shows what a rollout would do: for each minion whether it goes, in which wave, and if not, why not. Changes nothing: each minion makes the dry run of
    the switch, and of the install if it lacks the release.

    tgt, tgt_type
        As for a job. The target is resolved to ids, once

    canary
        How many minions are the first wave, spread over the families of operating systems; or a list of ids

    percents
        The share of all minions that has gone at the end of each wave [default: 10, 50, 100]

    by, order
        A grain by whose values the waves go instead, and their order

    source, at_window, outside_window
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
    def planned():
        wanted = _wanted(release, package, canary, percents, by, order, name, sign_in)
        return shown.plan(_rollouts(), (tgt, tgt_type), wanted, format, source, wanting.timing(at_window, outside_window), groups, verbose, file)

    return _answered(planned)


def _wanted(release, package, canary, percents, by, order, seed, sign_in):
    return planning.Wanted(package or _rollouts().package, str(release), canary, percents or [10, 50, 100], by, order or [], str(seed), sign_in)


# --- rollouts ----------------------------------------------------------------------------------------------------------


def rollout(
    tgt=None, release=None, tgt_type="glob", package=None, canary=1, percents=None, by=None, order=None, source=None, install_rate=None, splay="60s",
    at_window=None, name=None, despite_failures=False, test=False, plan=None, sign_in=None, outside_window=None, **settings
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

    at_window, outside_window
        A minion outside its maintenance window waits for the next window, or begins all the same; without these, it is refused

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
    options = {"source": source, "install_rate": install_rate, "splay": splay, "at_window": at_window, "outside_window": outside_window}

    def begin():
        given = wanting.Given(tgt, tgt_type, release, plan, name, sign_in, despite_failures, test)
        return wanting.begin(_rollouts(), given, lambda: _wanted(release, package, canary, percents, by, order, "", sign_in), _settings(settings), options)

    return _answered(begin)


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
    return _answered(lambda: _rollouts().resume(str(name), again, take_over))


def rollback(name, wave=None, test=False, outside_window=None, **settings):
    """
    Takes the minions of a rollout back to the release that each of them ran before, as a rollout of its own, named ``NAME-back``. The rollout is aborted
    first; a runner that drives it has to be aborted before.

    wave
        Only the minions of this wave: 1 is the first one [default: all that are done]

    test
        Only show which minions go back

    outside_window
        Minions outside their maintenance windows go back, too, at once [default: as in the rollout]

    settings
        As those of ``sidle.rollout`` [default: those of the rollout, and no soak time]

    .. code-block:: bash

        salt-run sidle.rollback salt-minion-3007.17-1-20261124-091200 wave=2
    """
    return _answered(lambda: _rollouts().roll_back(str(name), own_rollouts.index_of(wave), test, _settings(settings), outside_window))


def take_up(minion):
    """
    Takes up a minion that was offline during a rollout, if all waves of the rollout are through. For a reactor on ``salt/minion/*/start``.

    .. code-block:: yaml

        # /etc/salt/master.d/reactor.conf: reactor: [{'salt/minion/*/start': [/srv/reactor/sidle.sls]}]
        # /srv/reactor/sidle.sls
        take it up:
          runner.sidle.take_up:
            - minion: {{ data['id'] }}
    """
    def take_up_now():
        own_id = names.minion(str(minion))
        return _continued(lambda record: record["status"] == states.LATE and record["hosts"].get(own_id, {}).get("state") == states.OFFLINE, f"take_up {own_id}")

    return _answered(take_up_now)


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
    return _continued(own_rollouts.has_work, "go_on")


def pause(name, reason="paused by a person"):
    """
    Orders no minion until ``sidle.resume``; switches in progress end by themselves.

    .. code-block:: bash

        salt-run sidle.pause salt-minion-3007.17-1-20261124-091200
    """
    return _answered(lambda: _rollouts().command(str(name), "pause", reason))


def abort(name, reason="aborted by a person"):
    """
    Ends a rollout: no minion is ordered any more; switches in progress end by themselves, and those that wait for a maintenance window are cancelled.

    .. code-block:: bash

        salt-run sidle.abort salt-minion-3007.17-1-20261124-091200
    """
    return _answered(lambda: _rollouts().command(str(name), "abort", reason))


def rollouts():
    """
    Lists the rollouts of this master.

    .. code-block:: bash

        salt-run sidle.rollouts
    """
    return _rollouts().summaries()


def show(name):
    """
    Shows a rollout with each of its minions.

    .. code-block:: bash

        salt-run sidle.show salt-minion-3007.17-1-20261124-091200
    """
    return _answered(lambda: _rollouts().details(str(name)))


def why(minion, jid=None, format="text"):
    """
    Says why a minion did not return: one cause with its evidence and its remedy, or which evidence is missing. Asks the minion; changes nothing.

    jid
        The job [default: the newest one that this minion should have answered, and did not]

    format
        ``text`` or ``data``

    .. code-block:: bash

        salt-run sidle.why web17
        salt-run sidle.why web17 20261124091200123456
    """
    return _answered(lambda: shown.why(__opts__, _rollouts(), minion, jid, format))


def missing(jid=None, tgt=None, tgt_type="glob", format="text", file=None, run_again=None):
    """
    Says who did not return a job, and why: all silent minions in groups of one cause, each with its ids and its remedy. Asks those that can answer; changes
    nothing, unless ``run_again`` is given.

    jid
        The job [default: the newest one that lacks a return]

    tgt, tgt_type
        Who should have returned [default: those for whom the master published the job]

    format
        ``text`` or ``data``

    file
        Write it to this file of the directory ``files`` (see above) instead

    run_again
        Publish the job again, with the same arguments, to those that answer and surely did not begin it: the digest that is shown beside what would be run. Any
        accepted minion can store another job under this id, so read it before. Each minion is asked once, however often this is called

    .. code-block:: bash

        salt-run sidle.missing
        salt-run sidle.missing 20261124091200123456 run_again=sha256-0a1b2c3d4e5f60718293
    """
    return _answered(lambda: shown.missing(__opts__, _rollouts(), jid, (tgt, tgt_type) if tgt else None, format, file, run_again))


def missed(minion, since="24h", format="text", run=None):
    """
    Says which jobs were published for a minion and have no return of it, each with its cause: after a switch with a downtime, or a night offline. Asks the
    minion; changes nothing, unless ``run`` is given.

    since
        How far back: ``30m``, ``24h``, ``7d``, or a time in UTC (``2026-11-24T09:12:00Z``), as far as the job cache goes

    run
        Publish these jobs again, with the same arguments, each after the return of the one before, the oldest first: a list of ids with the digests that are shown
        beside what would be run. Each is run again once, however often this is called

    .. code-block:: bash

        salt-run sidle.missed web17
        salt-run sidle.missed web17 since=2h run='[20261124091200123456/sha256-0a1b2c3d4e5f60718293]'
    """
    return _answered(lambda: shown.missed(__opts__, _rollouts(), minion, since, format, run))


def masters(via=None, format="text"):
    """
    Says whether the other masters of this master's minions agree with it: accepted keys, nodegroups, roots, settings, versions and rollouts; what differs, and
    what to copy. Leaves a card with a few minions, and reads those of the others there, as old as their last ``sidle.masters``: docs/rollouts.md.

    via
        The minions, a list [default: a few that are connected and have other masters]

    .. code-block:: bash

        salt-run sidle.masters
    """
    return _answered(lambda: shown.masters(__opts__, _rollouts(), via, format))
