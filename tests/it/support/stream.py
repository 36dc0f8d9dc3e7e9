"""A stream of jobs: publishes them, listens for what comes of them, and reports what became of each.

    publish OPTIONS    publishes until standard input ends; one JSON line a job into OPTIONS["log"]
    batch OPTIONS      runs a job as a batch (`salt -b 1`) now and then until standard input ends; one JSON line for each into OPTIONS["log"]
    listen OPTIONS     writes the events of the master's bus into OPTIONS["log"] until standard input ends
    report OPTIONS     prints one JSON object: see `report`

OPTIONS is one JSON object. Runs with the Python of the master's tree.
"""

import collections
import datetime
import hashlib
import itertools
import json
import os
import select
import sys
import time

# Further behind than this, the publisher gives up the jobs that it owes rather than publish them in one burst.
BEHIND_SECONDS = 1.0
# How long the master may take to publish a job. Salt's own 30 s would stop the stream for as long as a master is down.
PUBLISH_SECONDS = 5
# Scheduled jobs at the end of the stream may not have run yet.
TICK_MARGIN_SECONDS = 5
# How long after a batch the next one begins.
BATCH_SECONDS = 20
# What takes the main process of a minion longest, seconds on a busy machine, in which it reads nothing: so many jobs have one of these, or a queued state.
MIXED_EVERY = 12
REFRESHES = [f"saltutil.refresh_{what}" for what in ("grains", "pillar", "modules", "beacons")]
# The tests' cron job: `* * * * * */10`.
CRON_SECONDS = 10


def ended(seconds):
    """Waits for so long, or until standard input ends: then gives True."""
    readable, _, _ = select.select([sys.stdin], [], [], max(seconds, 0))
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


class Log:
    """A file of JSON lines, each there as soon as it is written."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def write(self, **fields):
        self.file.write(json.dumps(fields, default=str) + "\n")


def publish(options):
    import salt.client
    import salt.utils.jid

    log = Log(options["log"])
    client = salt.client.LocalClient(c_path=options["config"], auto_reconnect=True)
    log.write(ready=time.time())
    number, due = 0, time.time()
    refreshes = itertools.cycle(REFRESHES)
    while not ended(due - time.time()):
        number += 1
        due += 1 / options["rate"]
        if time.time() - due > BEHIND_SECONDS:
            log.write(behind=time.time() - due)
            due = time.time()
        name = f"{options['name']}-{number}"
        kind, function, arguments = job(options, number, name)
        # Chosen here, so that a job whose publication failed half-way is known when it turns up. Its last digit is the publisher's: two that publish
        # in the same microsecond would give one id to two jobs, of which a minion runs one.
        jid = salt.utils.jid.gen_jid(client.opts)[:-1] + options["name"][-1]
        fields = {"jid": jid, "name": name, "kind": kind, "at": time.time()}
        try:
            told = client.run_job(
                options["minion"], function, arguments, jid=jid, timeout=PUBLISH_SECONDS, listen=False
            )
            fields["published"] = told.get("jid") == jid
        except Exception as error:  # whatever it is, the stream goes on
            fields.update(published=False, error=f"{type(error).__name__}: {error}")
            client = again(options, client)
        log.write(**fields)
        if options["refresh_every"] and number % options["refresh_every"] == 0:
            refresh(client, options, next(refreshes))


# Each has the minion's main process load something anew, which takes it up to some seconds.
REFRESHES = ("saltutil.refresh_grains", "saltutil.refresh_pillar", "saltutil.refresh_modules", "saltutil.refresh_beacons")


def refresh(client, options, function):
    """A job that nobody asks about afterwards: it only keeps the minion's main process from reading."""
    try:
        client.run_job(options["minion"], function, [], timeout=PUBLISH_SECONDS, listen=False)
    except Exception:  # the master is down: then there is nothing to refresh
        pass


def again(options, client):
    """Another client: the old one may hold the key of a master that is gone."""
    import salt.client

    try:
        return salt.client.LocalClient(c_path=options["config"], auto_reconnect=True)
    except Exception:  # the master is still down
        return client


def job(options, number, name):
    """The number-th job: kind, function, arguments."""
    if number == options["once_number"]:
        return "long", "mark.sleep", [options["once_seconds"], name]
    if options["long_every"] and number % options["long_every"] == 2:
        return "long", "mark.sleep", [options["long_seconds"], name]
    if options["mixed"] and number % MIXED_EVERY == 1:
        return "refresh", ["mark.run", REFRESHES[number // MIXED_EVERY % len(REFRESHES)]], [[name], []]
    if options["mixed"] and number % MIXED_EVERY == 4:
        return "queued", ["mark.run", "state.single"], [[name], ["test.nop", f"name={name}", "queue=True"]]
    if options["compound_every"] and number % options["compound_every"] == 3:
        return "compound", ["test.echo", "mark.run"], [[name], [name]]
    return "short", "mark.run", [name]


def batch(options):
    import salt.client

    log = Log(options["log"])
    client = salt.client.LocalClient(c_path=options["config"], auto_reconnect=True)
    log.write(ready=time.time())
    for number in itertools.count(1):
        if not options["mixed"] or ended(BATCH_SECONDS):
            return
        name = f"batch-{options['name']}-{number}"
        try:
            answers = list(client.cmd_batch(options["minion"], "mark.run", [name], batch="1"))
            log.write(batch=name, answered=any(answer.get(options["minion"]) == name for answer in answers))
        except Exception as error:  # whatever it is, the stream goes on
            log.write(batch=name, answered=False, error=f"{type(error).__name__}: {error}")
            client = again(options, client)


def listen(options):
    import salt.config
    import salt.utils.event

    master = salt.config.master_config(options["config"])
    log = Log(options["log"])
    kept = ("jid", "fun", "schedule", "id", "retcode", "success", "data", "release")
    while not ended(0):
        try:
            with salt.utils.event.get_event("master", opts=master, sock_dir=master["sock_dir"], listen=True) as bus:
                if not bus.connect_pub(timeout=1):
                    ended(0.2)
                    continue
                log.write(ready=time.time())
                while not ended(0):
                    event = bus.get_event(wait=0.5, full=True, auto_reconnect=True)
                    if event:
                        data = event["data"]
                        stamp = datetime.datetime.fromisoformat(data["_stamp"])
                        stamp = stamp.replace(tzinfo=datetime.timezone.utc).timestamp()
                        log.write(tag=event["tag"], at=stamp, **{key: data[key] for key in kept if key in data})
        except Exception as error:  # a master that went away: its bus comes back with it
            log.write(error=f"{type(error).__name__}: {error}")
            ended(0.2)


def lines(path):
    """The JSON lines of a file; the last one may be half written."""
    found = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass
    return found


Mark = collections.namedtuple("Mark", "what jid name pid parent release at")


def marks(path, since):
    found = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if len(words) == len(Mark._fields) and float(words[6]) >= since:
                    found.append(Mark(*words[:3], int(words[3]), int(words[4]), words[5], float(words[6])))
    return found


def returns(cache, minion):
    """The jids in a master's job cache for which the minion's return is there, with the time at which it came."""
    found = {}
    jobs = os.path.join(cache, "jobs")
    for first in os.listdir(jobs) if os.path.isdir(jobs) else ():
        for rest in os.listdir(os.path.join(jobs, first)):
            directory = os.path.join(jobs, first, rest)
            try:
                came = os.stat(os.path.join(directory, minion, "return.p")).st_mtime
                with open(os.path.join(directory, "jid"), encoding="utf-8") as file:
                    found[file.read().strip()] = came
            except OSError:
                pass
    return found


def job_log(gate, since):
    """The steps of each job in the guards' job log; None: nobody keeps one."""
    if not gate or not os.path.exists(os.path.join(gate, "joblog")):
        return None
    found = collections.defaultdict(list)
    with open(os.path.join(gate, "joblog"), encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if len(words) == 4 and float(words[0]) >= since:
                found[words[3]].append({"what": words[2], "pid": int(words[1]), "at": float(words[0]) - since})
    return found


def is_claimed(gate, jid):
    """Whether somebody has made a job's claim, as the guard names it, whichever master asked."""
    name = hashlib.sha256(f"any\n{jid}".encode()).hexdigest()[:32]
    return bool(gate) and os.path.exists(os.path.join(gate, "claims", name))


def fired_at(mark):
    """When the scheduler fired: the jid has it. Some releases write it in UTC, some in local time."""
    naive = datetime.datetime.strptime(mark.jid[:20], "%Y%m%d%H%M%S%f")
    seconds = naive.replace(tzinfo=datetime.timezone.utc).timestamp()
    zone = round((mark.at - seconds) / 900) * 900
    return seconds + zone


def ticks(found, since, until, cron_seconds):
    """Of the cron job: ticks missing and ticks doubled. Of the interval job: the shortest and the longest pause, in seconds."""
    cron = collections.Counter(int(fired_at(mark) // cron_seconds) for mark in found if mark.name == "cron")
    expected = range(int(since // cron_seconds) + 1, int((until - TICK_MARGIN_SECONDS) // cron_seconds) + 1)
    fired = sorted(fired_at(mark) for mark in found if mark.name == "interval")
    pauses = [later - earlier for earlier, later in itertools.pairwise(fired)]
    return {
        "cron_expected": len(expected),
        "cron_missing": [tick * cron_seconds - since for tick in expected if not cron[tick]],
        "cron_doubled": [tick * cron_seconds - since for tick in expected if cron[tick] > 1],
        "interval_count": len(fired),
        "interval_shortest_seconds": min(pauses, default=None),
        "interval_longest_seconds": max(pauses, default=None),
        "on_start": sum(mark.name == "onstart" for mark in found),
    }


def is_batch(mark):
    return mark.name.startswith("batch-")


def batches(masters, found):
    """What became of the batches, whose job ids are Salt's own: asked for, answered, executed, and executed more than once."""
    told = [entry for master in masters for entry in lines(master["batches"]) if "batch" in entry]
    runs = collections.Counter(mark.name for mark in found if mark.what == "run" and is_batch(mark))
    return {
        "asked": len(told), "answered": sum(entry["answered"] for entry in told), "executed": len(runs),
        "twice": sorted(name for name, count in runs.items() if count > 1),
    }  # fmt: skip


def quantile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else None


def report(options):
    """What became of every job published between options["since"] and options["until"].

    options["masters"]: of each its job cache, and the logs of its publisher and its listener; options["marks"], options["minion"];
    options["gate"]: the directory of the minion's gate, or null.
    """
    since, until = options["since"], options["until"]
    found = marks(options["marks"], since)
    begun = collections.defaultdict(list)
    done = collections.Counter(mark.jid for mark in found if mark.what == "done")
    for mark in found:
        if mark.what == "run":
            begun[mark.jid].append(mark)
    minion, gate = options["minion"], options["gate"]
    steps = job_log(gate, since)
    caches = [returns(master["cache"], minion) for master in options["masters"]]
    result = {
        "jobs": [], "watched": steps is not None, "published": 0, "publish_failed": [], "executed": 0, "returned": 0, "lost": [], "executed_twice": [],
        "returned_twice": [], "returned_elsewhere": [], "unfinished": [], "per_master": [], "starts": [], "behind": 0,
    }  # fmt: skip
    known, answers, latencies, asked = set(), [], [], []
    for number, master in enumerate(options["masters"]):
        came = collections.defaultdict(list)
        scheduled = collections.Counter()
        for event in lines(master["events"]):
            tag = event.get("tag", "")
            if event.get("schedule"):
                if tag.startswith("salt/job/"):
                    scheduled[event.get("fun")] += 1
            elif tag.startswith("salt/job/") and tag.endswith(f"/ret/{minion}"):
                came[tag.split("/")[2]].append(event["at"])
            elif tag == f"salt/minion/{minion}/start":
                result["starts"].append(event["at"] - since)
        before = result["published"], result["returned"]
        for entry in lines(master["published"]):
            result["behind"] += "behind" in entry
            if "jid" not in entry:
                continue
            jid = entry["jid"]
            known.add(jid)
            executions, answered = begun[jid], caches[number].get(jid)
            elsewhere = any(jid in cache for other, cache in enumerate(caches) if other != number)
            brief = {"jid": jid, "name": entry["name"], "kind": entry["kind"], "at": entry["at"] - since,
                     "published": entry["published"], "error": "" if entry["published"] else entry.get("error", "refused"),
                     "steps": (steps or {}).get(jid, []), "claim_file": is_claimed(gate, jid),
                     "executed": len(executions), "finished": bool(done[jid]), "answers": len(came[jid]),
                     "returned": answered is not None, "elsewhere": elsewhere,
                     "by": [f"{mark.release}/{mark.parent}" for mark in executions]}  # fmt: skip
            result["jobs"].append(brief)
            if len(executions) > 1:
                result["executed_twice"].append(brief)
            if len(came[jid]) > 1:
                result["returned_twice"].append(brief)
            if elsewhere:
                result["returned_elsewhere"].append(brief)
            if not entry["published"]:
                # It may have gone out all the same: that is no loss, but it must not have run twice.
                result["publish_failed"].append(brief)
                continue
            result["published"] += 1
            asked.append(entry["at"])
            result["executed"] += bool(executions)
            result["returned"] += answered is not None
            if not executions or answered is None:
                result["lost"].append(brief)
            elif entry["kind"] == "long":
                if not done[jid]:
                    result["unfinished"].append(brief)
            else:
                at = min([*came[jid], answered])
                answers.append(at)
                latencies.append((entry["at"], at - entry["at"]))
        result["per_master"].append(
            {"published": result["published"] - before[0], "returned": result["returned"] - before[1], "scheduled": scheduled}
        )
    # Between the first job and the last one somebody answers all the time.
    moments = sorted([*answers, *(asked and [min(asked), max(asked)])])
    gaps = [(later - earlier, earlier - since) for earlier, later in itertools.pairwise(moments)]
    longest = max(gaps, default=(None, None))
    delays = [delay for _, delay in sorted(latencies)]
    third = len(delays) // 3
    result.update(
        longest_gap_seconds=longest[0], longest_gap_at=longest[1],
        p50_seconds=quantile(delays, 0.5), p99_seconds=quantile(delays, 0.99),
        first_third_p50_seconds=quantile(delays[:third], 0.5), last_third_p50_seconds=quantile(delays[-third:], 0.5),
        unasked=sorted(jid for jid in begun if jid not in known and any(not is_batch(mark) for mark in begun[jid])),
        batches=batches(options["masters"], found),
        releases=dict(collections.Counter(runs[0].release for runs in begun.values() if runs)),
        startup_states=sum(mark.what == "startup" for mark in found),
        mine_updates=sum(mark.what == "mine" for mark in found),
        ticks=ticks([mark for mark in found if mark.what == "tick"], since, until, CRON_SECONDS),
    )  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    {"publish": publish, "batch": batch, "listen": listen, "report": report}[sys.argv[1]](json.loads(sys.argv[2]))
