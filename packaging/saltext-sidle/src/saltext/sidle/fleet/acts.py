"""Who ordered a rollout, and what people and schedules have done with it since: a list in its record."""

from . import values

#: Of a rollout so many acts are kept: a schedule that goes on with it every minute must not make the record grow without end.
ACTS_MAX = 200

#: Where Salt does not say who calls.
UNKNOWN = "unknown"


def note(record, now, act, by, words=None):
    """Adds an act to the record. `by`: the user that Salt names; `words`: a reason, or how."""
    acts = record.setdefault("acts", [])
    acts.append({"at": now, "act": act, "by": values.text(str(by or UNKNOWN)), "words": values.text(str(words)) if words else None})
    # The first one says who ordered the rollout.
    del acts[1 : max(1, len(acts) - ACTS_MAX + 1)]
