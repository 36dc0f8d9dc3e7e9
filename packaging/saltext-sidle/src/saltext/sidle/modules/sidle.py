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

import contextlib
import importlib
import json
import os

try:
    import _sidle_cards as sidle_cards
    import _sidle_program as sidle_program
except ImportError:
    # Whoever imports the installed package, and not Salt's loader: its pages.
    from saltext.sidle.modules import _sidle_cards as sidle_cards
    from saltext.sidle.modules import _sidle_program as sidle_program
else:
    # After a sync a minion that runs has the modules of before.
    importlib.reload(sidle_cards)
    importlib.reload(sidle_program)

__virtualname__ = "sidle"

__func_alias__ = {"list_": "list"}

#: The minion's own options by which sidle finds what it has of a job.
JOB_OPTIONS = ("cachedir", "log_file", "log_level", "log_level_logfile", "master_uri", "pidfile")


def __virtual__():
    # Without the program, too: a state may install it later in the same run. Until then each function returns an error that says so.
    return __virtualname__


def _sidle():
    return sidle_program.Minion(__opts__, __salt__, __context__)


def _hear():
    """Writes down what the master says of itself in the pillar, where it does (``pillar_opts: True``)."""
    master = __pillar__.get("master")
    if isinstance(master, dict) and isinstance(master.get("saltversion"), str):
        with contextlib.suppress(OSError, ValueError):
            sidle_cards.tell(__opts__, master["saltversion"], master.get("minimum_auth_version"), "the pillar")


def version():
    """
    Returns the version of the program, or None.

    .. code-block:: bash

        salt '*' sidle.version
    """
    return _sidle().version()


def status(package=None, instance=None, trees=True):
    """
    Shows the current, installed and running releases, and the switch under way. Code 4 while a switch is under way.

    package
        The package [default: all]

    trees
        Look at the files of the releases, some ten thousand of each; ``False`` for who asks often

    .. code-block:: bash

        salt '*' sidle.status
    """
    return _sidle().run("status", [package], instance=instance, no_trees=trees is False)


def list_(package=None):
    """
    Lists the installed releases.

    .. code-block:: bash

        salt '*' sidle.list
    """
    return _sidle().run("list", [package])


def history(package=None, instance=None, number=None):
    """
    Shows past switches of an instance.

    number
        Only the switch of this number, with each of its steps

    .. code-block:: bash

        salt web17 sidle.history
        salt web17 sidle.history number=12
    """
    return _sidle().run("history", [_sidle().package(package)], instance=instance, id=number)


def doctor(package=None, instance=None):
    """
    Checks this host; each finding has its remedy.

    .. code-block:: bash

        salt '*' sidle.doctor
    """
    return _sidle().run("doctor", [package], instance=instance)


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
    source = source or _sidle().package()
    cached = None
    if source.startswith("salt://"):
        cached = __salt__["cp.cache_file"](source)
        if not cached:
            return _sidle().failed(
                f"cannot install {source}: the master does not serve this file",
                "`salt-run fileserver.file_list` on the master lists its files",
            )
    answer = _sidle().run(
        "install",
        [cached or source],
        release=release,
        repository=None if cached else repository or _sidle().option("repository"),
        rate=rate,
        refetch=refetch,
        force_place=force_place,
        dry_run=_sidle().dry(test),
    )
    if cached and not _sidle().dry(test) and answer["code"] in sidle_program.SUCCESSES:
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
    _hear()
    return _sidle().switch("switch", [_sidle().package(package), release], wait, test, options)


def rehearse(package=None, release=None, **options):
    """
    Rehearses a switch to this release: the checks, the refusals and the rehearsal of the real one. The release loads this host's configuration
    and modules beside the running minion, without a master; modules that would be lost are a refusal, or among the notes. Changes nothing.

    .. code-block:: bash

        salt '*' sidle.rehearse release=3007.17-1
    """
    _hear()
    return _sidle().run("switch", [_sidle().package(package), release], options, dry_run=True, rehearse=True)


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
    _hear()
    more = {"repository": repository or _sidle().option("repository"), "rate": rate, "refetch": refetch}
    return _sidle().switch("upgrade", [source or _sidle().package()], wait, test, options, **more)


def rollback(package=None, release=None, wait=False, test=None, **options):
    """
    Switches an instance back to its previous release, or to a named release.

    .. code-block:: bash

        salt '*' sidle.rollback reason='pillar does not compile'
    """
    return _sidle().switch("rollback", [_sidle().package(package), release], wait, test, options)


def restart(package=None, if_changed=None, wait=False, test=None, **options):
    """
    Restarts the current release, without losing a job: how a changed configuration is loaded.

    .. code-block:: bash

        salt '*' sidle.restart if_changed=True
    """
    return _sidle().switch("restart", [_sidle().package(package)], wait, test, options, if_changed=if_changed)


def cancel(package=None, instance=None, test=None):
    """
    Cancels the switch under way, before the new release becomes current.

    .. code-block:: bash

        salt web17 sidle.cancel
    """
    return _sidle().run("cancel", [_sidle().package(package)], instance=instance, dry_run=_sidle().dry(test))


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
    return _sidle().run(
        "hold",
        [_sidle().package(package)],
        instance=instance,
        reason=reason,
        until=until,
        all=rollbacks_too,
        for_=lasting,
        dry_run=_sidle().dry(test),
    )


def unhold(package=None, instance=None, test=None):
    """
    Ends a hold.

    .. code-block:: bash

        salt 'db*' sidle.unhold
    """
    return _sidle().run("unhold", [_sidle().package(package)], instance=instance, dry_run=_sidle().dry(test))


def claim(rollout, epoch, package=None, instance=None, lasting=None, test=None):
    """
    Claims an instance for a rollout: orders of another rollout, and of an older epoch, are refused (code 12). The runner does this.

    .. code-block:: bash

        salt web17 sidle.claim r1 epoch=1
    """
    return _sidle().run(
        "rollout claim", [_sidle().package(package), rollout], epoch=epoch, instance=instance, for_=lasting, dry_run=_sidle().dry(test)
    )


def unclaim(rollout, package=None, instance=None, test=None):
    """
    Ends the claim of a rollout.

    .. code-block:: bash

        salt web17 sidle.unclaim r1
    """
    return _sidle().run("rollout unclaim", [_sidle().package(package), rollout], instance=instance, dry_run=_sidle().dry(test))


def job(jid=None):
    """
    Shows what this host knows of a job: whether the minion has received it, runs it, has queued it, or has returned it; and the switches since then. Reads
    only. The runner's function ``sidle.why`` asks this.

    .. code-block:: bash

        salt web17 sidle.job 20261124091200123456
    """
    masters = __opts__.get("master_list") or __opts__.get("master")
    if __opts__.get("multimaster"):
        import salt.config

        # The options of a job name the master that published it, and no other one.
        masters = salt.config.minion_config(__opts__["conf_file"]).get("master") or masters
    own = {
        "master": __opts__.get("master"),
        "masters": [str(each).rsplit(":", 1)[0] if str(each).count(":") == 1 else each for each in (masters if isinstance(masters, list) else [masters])],
        "cache_jobs": bool(__opts__.get("cache_jobs")),
    }
    options = {name: __opts__[name] for name in JOB_OPTIONS if isinstance(__opts__.get(name), str)}
    return {**own, **_sidle().run("job", [jid or None], package=_sidle().package(), options=json.dumps(options))}


def masters_card(card=None):
    """
    Returns the cards that the other masters of this minion have left here, and leaves that of the master that asks. A card is digests of a master's keys,
    roots and settings, which no minion can read; nothing is decided by it. The runner's function ``sidle.masters`` calls this.

    card
        The card of the master that asks [default: it leaves none]
    """
    try:
        return sidle_cards.exchange(__opts__, card)
    except (OSError, ValueError) as error:
        return _sidle().failed(f"cannot keep the card of {__opts__.get('master')}: {error}", "`salt-run sidle.masters` on that master makes another one")


def master_is(version, minimum_auth_version=None, source="a job"):
    """
    Writes down the version of the master that asks, with the date: a switch on this host to a release that is newer than its master, or that its master would lock
    out, is refused. A plan of the runner says this to each minion by itself.

    minimum_auth_version
        The master's setting of that name [default: not known]

    source
        Where it comes from, for messages

    .. code-block:: bash

        salt '*' sidle.master_is "'3006.30'" minimum_auth_version=3
    """
    if isinstance(version, float):
        remedy = f"give it as text: `sidle.master_is \"'{version}0'\"`, or `\"'{version}'\"`"
        return _sidle().failed(f"cannot keep the version {version}: Salt reads it as a number, and a zero at its end would be lost", remedy)
    try:
        return {"code": 0, "master": sidle_cards.tell(__opts__, str(version), minimum_auth_version, str(source)[:40])}
    except (OSError, ValueError) as error:
        return _sidle().failed(f"cannot keep the version of {__opts__.get('master')}: {error}", "`salt --versions-report` on the master shows its version")
