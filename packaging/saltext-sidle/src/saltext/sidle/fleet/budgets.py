"""The budgets of a rollout: how many minions of a wave, and of a family of operating systems, may go wrong, and which failures there were."""

import re

from .states import FAILED, WAITING, RolloutError

#: Of different failures so many are remembered: a fleet in which each minion fails for a reason of its own needs a person long before.
FAILURES_MAX = 100

#: So many minions are named with a failure.
NAMED_MAX = 5

#: Of the tries of a minion that went wrong before a person resumed the rollout so many are kept.
TRIES_MAX = 5


def allowance(budget, hosts):
    """Returns how many of these may go wrong: `3`, or `"5%"` (rounded down)."""
    text = str(budget).strip()
    match = re.fullmatch(r"(\d+)(%?)", text)
    if not match or (match[2] and int(match[1]) > 100):
        raise RolloutError(f"cannot read the budget {text}: a number of hosts, or percent, as in 3 or 5%")
    return hosts * int(match[1]) // 100 if match[2] else int(match[1])


def signature(text):
    """Returns what tells one reason from another: numbers, paths and hosts differ where the reason is the same."""
    return re.sub(r"0x[0-9a-f]+|/[^\s:;,)]+|\d+", "…", text or "")


class Budgets:
    """What went wrong, by wave and by family. `record`: that of the rollout."""

    def __init__(self, record):
        self._record, self._wrong, self._sizes = record, {}, {}
        for host in record["hosts"].values():
            for key, _ in _keys(host):
                self._sizes[key] = self._sizes.get(key, 0) + 1

    def count(self, host):
        """Counts a minion that went wrong."""
        for key, _ in _keys(host):
            self._wrong[key] = self._wrong.get(key, 0) + 1

    def accept_all(self):
        """Stops counting what went wrong until now."""
        self._record["accepted"] = dict(self._wrong)

    def exceeded(self, host):
        """Returns why the rollout has to halt after this minion went wrong; None: its budgets allow it."""
        for key, setting in _keys(host):
            budget, size = self._record["settings"][setting], self._sizes[key]
            allowed = allowance(budget, size)
            wrong = self._wrong[key] - self._record["accepted"].get(key, 0)
            if wrong > allowed:
                return f"{key}: {wrong} of {size} hosts went wrong, {allowed} may ({budget}); the last: {host['text']}"
        return None

    def remember(self, minion, host, phase):
        """Remembers the failure of a minion: the same failure of several minions once."""
        key, known = f"{host['family']}: {phase}: {signature(host['text'])}", self._record["failures"]
        if key in known:
            known[key]["count"] += 1
            known[key]["hosts"] = [*known[key]["hosts"], minion][:NAMED_MAX]
        elif len(known) < FAILURES_MAX:
            known[key] = {"cause": host["cause"], "text": host["text"], "hosts": [minion], "count": 1, "accepted": False}


def try_again(host):
    """Lets a minion that went wrong wait for another order; what went wrong stays for the report."""
    # A release that failed there is marked as bad: whoever says so tries it all the same.
    if host["state"] == FAILED:
        host["force"] = True
    host["earlier"] = [*host.get("earlier", ()), {key: host.get(key) for key in ("state", "ended", "cause", "text")}][-TRIES_MAX:]
    for key in ("ordered", "ended", "cause", "text", "orders"):
        host.pop(key, None)
    host["state"] = WAITING


def _keys(host):
    return ((f"wave {host['wave'] + 1}", "budget"), (f"family {host['family']}", "family_budget"))
