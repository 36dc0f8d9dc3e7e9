"""The verdict on a job that arrived. Pure: no files, no loop."""

import re

# Claimed by this process, and given to Salt; kept until there is a verdict; another process's.
RUN, HOLD, DROP = "run", "hold", "drop"
# The other process has claimed by then what it received. A job that it never got waits this long.
PATIENCE_SECONDS = 2.0
# Salt's ids begin with the time to the microsecond; other ids have no order.
ORDERED = re.compile(r"\d{20}(_|$)")


def decide(role, waited, closed_on_arrival, missed_by_other):
    """The verdict for a job that has waited so long (seconds) in a process of that role."""
    if role == "active":
        return RUN
    if closed_on_arrival:
        return DROP
    if role in ("draining", "closed") and missed_by_other:
        return RUN
    return RUN if waited >= PATIENCE_SECONDS else HOLD


def missed(jid, peer, reports):
    """Whether another slot began to listen to this peer only after this job."""
    for report in reports:
        for found in report.get("peers", ()):
            first = found.get("first")
            if found.get("address") == peer and first and ORDERED.match(jid) and ORDERED.match(first):
                if jid < first:
                    return True
    return False
