"""Publishes to a minion's resources, with and without the minion, and counts the returns of each on the master's bus: CONFIGURATION SECONDS."""

import collections
import json
import sys
import time

import salt.client
import salt.config
import salt.utils.event

configuration, seconds = sys.argv[1], float(sys.argv[2])
opts = salt.config.client_config(configuration)
bus = salt.utils.event.get_event("master", sock_dir=opts["sock_dir"], opts=opts, listen=True)
client = salt.client.LocalClient(configuration)
counts = {}


def listen(until):
    """Counts returns until then."""
    while time.monotonic() < until:
        event = bus.get_event(wait=0.2, full=True, no_block=False)
        tag = event["tag"].split("/") if event else []
        if tag[:2] == ["salt", "job"] and tag[3:4] == ["ret"] and tag[2] in counts:
            counts[tag[2]][tag[4]] += 1


end = time.monotonic() + seconds
while time.monotonic() < end:
    target = ("T@dummy", "compound") if len(counts) % 2 else ("*", "glob")
    job = client.run_job(target[0], "test.ping", tgt_type=target[1], listen=False)
    if "jid" not in job:
        sys.exit(f"nobody is targeted by {target}: {job}")
    counts[job["jid"]] = collections.Counter()
    listen(time.monotonic() + 0.5)
listen(time.monotonic() + 15)
print(json.dumps(counts))
