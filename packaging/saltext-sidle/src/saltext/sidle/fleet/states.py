"""The words of a rollout: the states of its minions, of itself, and its direction. They are in its record, which is a public format."""

#: The states of a minion. Left out: it came back with another release than the release that the plan was made from.
WAITING, INSTALLING, ORDERED, DONE, REFUSED, FAILED, LOST, OFFLINE, LEFT_OUT = (
    "waiting", "installing", "ordered", "done", "refused", "failed", "lost", "offline", "left out",
)  # fmt: skip

#: States in which an order is on its way.
IN_FLIGHT_STATES = (INSTALLING, ORDERED)

#: States that count against a budget.
BAD_STATES = (REFUSED, FAILED, LOST)

#: States in which nobody knows what the minion runs.
UNSURE_STATES = (*IN_FLIGHT_STATES, LOST)

#: The `cause` of a minion that is refused because its answer cannot be read.
UNREADABLE = "answer"

#: The states of a rollout. Late: all waves are through, and offline minions are taken up when they come back.
RUNNING, LATE, HALTED, ABORTED, ENDED = "running", "late", "halted", "aborted", "ended"

#: The direction of a rollout: to a release, or back to what each minion ran before.
SWITCH, ROLLBACK = "switch", "rollback"


class RolloutError(ValueError):
    """What was asked is not possible now: the message names why."""


def is_unsure(host):
    """Returns whether nobody knows what a minion runs."""
    return host["state"] in UNSURE_STATES or host.get("cause") == UNREADABLE


def is_scheduled(record, live):
    """Returns whether a switch waits for its window, as this rollout may have ordered it."""
    return bool(record.get("at_window") and live and live["phase"] == "scheduled")


def is_untold(record):
    """Returns whether nobody was told of the state of a rollout (`announcing`). Records of earlier versions are never due."""
    return "announced" in record and (record["announced"] or {}).get("status") != record["status"]
