"""The record of a new rollout: its settings, and the state of each minion before the first step."""

import math

from . import states
from .budgets import allowance
from .states import RolloutError
from .verdicts import GONE, REFUSED

DEFAULTS = {
    # How many minions may switch at once: each costs its masters a sign-in, a pillar and proofs.
    "at_once": 50,
    # How many minions are ordered to switch in a minute, at most.
    "per_minute": 100,
    # How many minions may install at once: they share what the source can serve.
    "install_at_once": 20,
    # After so long without the release an installing minion is ordered again.
    "install_seconds": 900,
    # So many minions of a wave may be refused, fail or be lost: a number, or percent of the wave.
    "budget": "2%",
    # The same for all minions of one family of operating systems.
    "family_budget": "5%",
    # How long a wave is watched after its last minion has ended.
    "soak_seconds": 300,
    # After so long without an answer a minion is lost.
    "patience_seconds": 900,
    # After so long an ordered minion that has begun nothing is ordered again: longer than the splay.
    "order_seconds": 120,
    # A minion in flight is asked so often.
    "ask_seconds": 15,
    # Offline minions are taken up for so long.
    "late_seconds": 90 * 86400,
}


def new(rollout_id, plan, now, **settings):
    """Returns the record of a rollout of this plan, before its first step."""
    settings = _checked({**DEFAULTS, **settings})
    hosts = {}
    for number, wave in enumerate(plan.waves):
        for minion in wave:
            host = plan.hosts[minion]
            hosts[minion] = {
                "wave": number, "family": host.family, "from": host.running, "to": plan.release, "before": host.last_switch, "lacks": host.lacks,
                "state": states.OFFLINE if host.verdict == "offline" else states.WAITING,
            }  # fmt: skip
    record = _record(rollout_id, states.SWITCH, plan.package, plan.release, settings, now, hosts, len(plan.waves))
    # Nobody orders these; the report names them.
    stay = {minion: host for minion, host in plan.hosts.items() if host.verdict in (REFUSED, GONE)}
    record["stay"] = {minion: {"verdict": host.verdict, "from": host.running, "why": list(host.why)} for minion, host in stay.items()}
    return record


def back(rollout_id, former, wave, now, **settings):
    """
    Returns the record of a rollout that takes minions of a former rollout (its record) back to the release that each of them ran before.

    `wave`: the wave to take back, counted from 0; None: all minions that are done. Raises `RolloutError` where none can go back.
    """
    done = {minion: host for minion, host in former["hosts"].items() if host["state"] == states.DONE and wave in (None, host["wave"])}
    hosts = {
        minion: {
            "wave": 0, "family": host["family"], "from": host["to"], "to": host["from"], "before": host["before"], "lacks": False,
            "state": states.WAITING,
        }
        for minion, host in done.items()
        if host["from"]
    }  # fmt: skip
    if not hosts:
        which = "no wave" if wave is None else f"wave {wave + 1}"
        raise RolloutError(f"cannot roll back {which} of rollout {former['id']}: none of its hosts is done, and ran another release before")
    settings = _checked({**former["settings"], "soak_seconds": 0, **settings})
    record = _record(rollout_id, states.ROLLBACK, former["package"], former["release"], settings, now, hosts, 1)
    record["of"] = former["id"]
    return record


def _checked(settings):
    unknown = sorted(set(settings) - set(DEFAULTS))
    if unknown:
        raise RolloutError(f"no setting is called {', '.join(unknown)}: there are {', '.join(DEFAULTS)}")
    budgets = ("budget", "family_budget")
    for name in budgets:
        allowance(settings[name], 1)
    for name in set(DEFAULTS) - set(budgets):
        is_number = isinstance(settings[name], (int, float)) and math.isfinite(settings[name])
        if not is_number or settings[name] < (0 if name == "soak_seconds" else 1):
            raise RolloutError(f"cannot take {name}={settings[name]}: a number of at least 1")
    return settings


def _record(rollout_id, purpose, package, release, settings, now, hosts, waves):
    return {
        "schema": 1, "id": rollout_id, "status": states.RUNNING, "epoch": 1, "purpose": purpose, "package": package, "release": release,
        "settings": settings, "begun": now, "why": None, "wave": 0, "waves": waves, "soaking_since": None,
        "accepted": {}, "failures": {}, "untried": [], "hosts": hosts, "acts": [], "announced": None,
    }  # fmt: skip
