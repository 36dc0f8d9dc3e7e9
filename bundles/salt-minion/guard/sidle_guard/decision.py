"""What becomes of a job that arrived: pure, told nothing of files or loops."""

import re

CLAIM, WAIT, DROP = "claim", "wait", "drop"
# Long enough for the other process to have claimed what it received; a job that it never got
# waits this long at most.
PATIENCE_SECONDS = 2.0
# Salt's ids begin with the time to the microsecond; others say nothing about order.
ORDERED = re.compile(r"\d{20}(_|$)")


def decide(role, waited, closed_on_arrival, missed_by_other):
    """The verdict for a job that has waited so long (seconds) in a process of that role."""
    if role == "active":
        return CLAIM
    if closed_on_arrival:
        return DROP
    if role in ("draining", "closed") and missed_by_other:
        return CLAIM
    return CLAIM if waited >= PATIENCE_SECONDS else WAIT


def missed(jid, peer, reports):
    """Whether one of the other slots listens to this peer, but only since after this job."""
    for report in reports:
        for found in report.get("peers", ()):
            first = found.get("first")
            if found.get("address") == peer and first and ORDERED.match(jid) and ORDERED.match(first):
                if jid < first:
                    return True
    return False
