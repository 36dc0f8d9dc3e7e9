"""The claims of a driver at the hosts: who refuses them, and what that means for the driver."""

from typing import NamedTuple

from . import answers, jobs
from .records import Superseded
from .states import RolloutError

#: Of the hosts that refuse a driver so many are named.
REFUSALS_SHOWN = 5


class Answered(NamedTuple):
    """The answers to a claim. A host that does not hear of a claim is claimed by its first order."""

    #: Who took it.
    took: "list[str]"
    #: The error of each host that refuses.
    refusals: "dict[str, dict]"

    def are_few(self, of):
        """Returns whether so few of these hosts refuse that the others go on: neither another rollout nor another driver has taken most of them."""
        return len(self.refusals) * 2 <= len(of)

    def are_newer(self):
        """Returns whether most of those that refuse belong to this rollout, and obey a driver with a newer epoch."""
        return sum(error.get("reason") != answers.OTHER_ROLLOUT for error in self.refusals.values()) * 2 > len(self.refusals)


def claim(bus, record, ids):
    """Claims hosts, with the epoch of the record: they refuse other rollouts then, and drivers of older epochs. Raises `jobs.Away`."""
    found = _asked(bus, record, ids)
    refused = _refusals(found)
    if refused:
        # The end of a former claim may have been on its way.
        again = _asked(bus, record, list(refused))
        found.update(again)
        refused = _refusals(again)
    return Answered([minion for minion in found if minion not in refused], refused)


def _asked(bus, record, ids):
    kwarg = {"rollout": record["id"], "epoch": record["epoch"], "package": record["package"]}
    return bus.ask(ids, "sidle.claim", kwarg=kwarg, read=answers.order)


def _refusals(found):
    # Nonsense is no refusal: what the host says to its order decides.
    return {minion: answer["error"] for minion, answer in found.items() if jobs.is_taken(answer)}


def refused(record, answered, is_new):
    """Returns the error of a driver that hosts refuse."""
    count, lines = len(answered.refusals), [f"{minion}: {error['message']}" for minion, error in sorted(answered.refusals.items())][:REFUSALS_SHOWN]
    more = [f"and {count - REFUSALS_SHOWN} more"] if count > REFUSALS_SHOWN else []
    message = "\n".join([f"cannot drive rollout {record['id']}: {count} minions refuse it", *lines, *more])
    if is_new or not answered.are_newer():
        return RolloutError(message)
    remedy = f"if no other master drives it any more, go on with `salt-run sidle.resume {record['id']} take_over=True`"
    return Superseded(f"{message}\nanother driver goes on with this rollout: this record is older than what the minions know; {remedy}")
