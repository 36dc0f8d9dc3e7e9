"""The load on a master: counts its requests, and makes those of many minions that start at once, or are switched by a rollout.

    count OPTIONS      writes each request that the master has handled, and each start of a minion, into OPTIONS["log"] until standard input ends
    stand-by OPTIONS   makes a request twice a second, as a minion that has nothing to do with all that, until standard input ends
    generate OPTIONS   plays simulated minions: writes each of their requests into OPTIONS["log"]
    report OPTIONS     prints one JSON object: see `report`

OPTIONS is one JSON object. Runs with the Python of the master's tree, and with Salt's own clients. The master has `master_stats: True` and
`master_stats_event_iter: 0`: then it tells of each request, with the time that its worker took.
"""

import asyncio
import collections
import datetime
import json
import os
import random
import select
import sys
import time

# Longer than this a simulated minion waits for nothing.
REQUEST_SECONDS = 120
# A minion that was told to restart is there again within this time.
RESTART_SECONDS = 5
# So many sign-ins in a row reach all workers of the master.
SIGN_INS = 10
# The pause between two requests of the minion that stands by.
STAND_BY_SECONDS = 0.5
# Its command: one that no other minion of a measurement sends.
STAND_BY = "_master_opts"
# As in src/switch/gate/proofs.rs: the pause between round trips on probation.
PROOF_SECONDS = 30
# Jobs, and what orders them: their part depends on who asks, and how often.
JOBS = ("_return", "publish")
# What answers a job of a rollout: about as long as that of `sidle.status`.
ANSWER = {"instances": [{"instance": "salt-minion", "text": "x" * 1500}], "code": 0}


def ended(seconds):
    """Waits for so long, or until standard input ends: then gives True."""
    readable, _, _ = select.select([sys.stdin], [], [], max(seconds, 0))
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


class Log:
    """A file of JSON lines, each there as soon as it is written."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def write(self, **fields):
        self.file.write(json.dumps(fields) + "\n")


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


# --- what the master does ------------------------------------------------------------------------------------------------


def count(options):
    import salt.config
    import salt.utils.event

    master = salt.config.master_config(options["config"])
    log = Log(options["log"])
    with salt.utils.event.get_event("master", opts=master, sock_dir=master["sock_dir"], listen=True) as bus:
        bus.connect_pub(timeout=10)
        log.write(ready=time.time())
        while not ended(0):
            event = bus.get_event(wait=0.5, full=True, auto_reconnect=True)
            if event:
                note(log, event["tag"].split("/"), event["data"])


def note(log, words, data):
    at = datetime.datetime.fromisoformat(data["_stamp"]).replace(tzinfo=datetime.timezone.utc).timestamp()
    if words[1:2] == ["stats"]:
        for command, seen in data["stats"].items():
            log.write(at=at, command=command, runs=seen["runs"], seconds=seen["mean"])
    elif words[1:2] == ["auth"] and "act" in data:
        log.write(at=at, sign_in=data["id"], act=data["act"])
    elif words[1:2] == ["minion"] and words[3:4] == ["start"]:
        log.write(at=at, started=words[2])


# --- minions -----------------------------------------------------------------------------------------------------------------


def minion_options(options, name):
    """What Salt's clients want to know of a minion of this name."""
    import salt.config

    directory = os.path.join(options["directory"], name)
    os.makedirs(os.path.join(directory, "pki"), exist_ok=True)
    wanted = {"id": name, "root_dir": directory, "pki_dir": "/pki", "enable_fqdns_grains": False}
    found = salt.config.apply_minion_config(overrides=wanted)
    host, port = options["master"].split(":")
    found.update(master=host, master_ip=host, master_uri=f"tcp://{host}:{port}", master_port=int(port), __role="minion", saltenv="base", pillarenv=None)
    return found


class Minion:
    """What a minion asks its master for, each time over a connection of its own, as a new process does."""

    def __init__(self, options, name, grains, log):
        import salt.crypt

        self.name, self.grains, self.log = name, grains, log
        self.options = minion_options(options, name)
        self.auth = salt.crypt.AsyncAuth(self.options, io_loop=asyncio.get_running_loop())

    async def sign_in(self):
        await self.auth.authenticate()

    async def pillar(self):
        import salt.pillar

        pillar = salt.pillar.AsyncRemotePillar(self.options, self.grains, self.name, "base")
        try:
            await pillar.compile_pillar()
        finally:
            await pillar.aclose()

    async def event(self):
        await self.send({"cmd": "_minion_event", "id": self.name, "tok": self.auth.gen_token(b"salt"),
                         "data": f"Minion {self.name} started", "tag": f"salt/minion/{self.name}/start"})  # fmt: skip

    async def proof(self):
        await self.send({"cmd": "_file_envs"})

    async def answer(self):
        # The job is the minion's own: the master has none with a number of somebody else's.
        await self.send({"cmd": "_return", "id": self.name, "jid": "req", "fun": "sidle.status", "fun_args": [], "return": ANSWER,
                         "retcode": 0, "success": True})  # fmt: skip

    async def send(self, load):
        import salt.channel.client

        async with salt.channel.client.AsyncReqChannel.factory(self.options) as channel:
            return await channel.send(load, timeout=REQUEST_SECONDS, tries=1)

    async def act(self, names, due):
        """One after the other; each is a line of the log, with the time since it was due."""
        for name in names:
            error = None
            try:
                await asyncio.wait_for(getattr(self, name)(), REQUEST_SECONDS)
            except Exception as caught:  # what the master does not serve is what is measured
                error = f"{type(caught).__name__}: {caught}"
            now = time.time()
            self.log.write(minion=self.name, act=name, at=now, seconds=now - due, error=error)
            due = now


async def until_it_counts(minion):
    """A worker that has not loaded its modules yet counts nothing, and refuses sign-ins: waits until none of them does."""
    end, good = time.monotonic() + REQUEST_SECONDS, 0
    while good < SIGN_INS:
        try:
            await minion.sign_in()
            good += 1
        except Exception:
            if time.monotonic() > end:
                raise
            good = 0
            await asyncio.sleep(0.5)


async def stand_by(options):
    import salt.channel.client

    minion = Minion(options, "standby", {}, Log(options["log"]))
    await until_it_counts(minion)

    async def ask(channel):
        due = time.time()
        await channel.send({"cmd": STAND_BY}, timeout=REQUEST_SECONDS, tries=1)
        minion.log.write(due=due, seconds=time.time() - due)

    async with salt.channel.client.AsyncReqChannel.factory(minion.options) as channel:
        minion.log.write(ready=time.time())
        asked = set()
        # One that waits delays those behind it, which count from when they were due.
        while not ended(0):
            asked = {task for task in asked if not task.done()} | {asyncio.create_task(ask(channel))}
            await asyncio.sleep(STAND_BY_SECONDS)


# --- simulated minions ---------------------------------------------------------------------------------------------------------


async def generate(options):
    """Every `parts`th minion is this program's. It begins at the time that standard input names, when all have their keys and have signed in once."""
    import salt.loader

    log = Log(options["log"])
    mine = range(options["part"], options["minions"], options["parts"])
    grains = dict(salt.loader.grains(minion_options(options, "grains")))
    minions = {}
    for number in mine:
        name = f"host{number:06}"
        minions[name] = Minion(options, name, grains, log)
        await minions[name].sign_in()
    plan = sorted(restart(options) if options["how"] == "restart" else rollout(options))
    log.write(ready=time.time())
    begin = float(await asyncio.to_thread(sys.stdin.readline))
    tasks = []
    for seconds, name, acts in plan:
        if name in minions:
            due = begin + seconds
            await asyncio.sleep(max(0, due - time.time()))
            tasks.append(asyncio.create_task(minions[name].act(acts, due)))
    await asyncio.gather(*tasks)


def restart(options):
    """When which minion does what, seconds after the beginning: all start within some seconds, as after one job to all of them."""
    chance = random.Random(1)
    return [(chance.uniform(0, RESTART_SECONDS), f"host{number:06}", ["sign_in", "pillar", "event"]) for number in range(options["minions"])]


def rollout(options):
    """The same of a rollout: the real machine decides, and its simulator says when each minion hears of it."""
    sys.path[:0] = [options["source"], os.path.join(options["source"], "../tests/unit")]
    import simulator
    from saltext.sidle.fleet import plan

    class Watched(simulator.Fleet):
        """Notes what the minions have to do with their master."""

        def __init__(self, world):
            super().__init__(world)
            self.seen, self.began = [], {}

        def note(self, each, *acts, at=None):
            self.seen.append((self.now if at is None else at, each, list(acts)))

        def order(self, each):
            # The old process proves what it reaches; the claim was answered some time before.
            self.note(each, "answer", "answer", "proof")
            return super().order(each)

        def status(self, each):
            self.note(each, "answer")
            return super().status(each)

        def _starts(self, each):
            self.began[each] = self.now
            self.note(each, "sign_in", "pillar", "proof")
            super()._starts(each)

        def _ends(self, each):
            at = self.began[each] + PROOF_SECONDS
            while at < self.now:
                self.note(each, "proof", at=at)
                at += PROOF_SECONDS
            # After the commit; then the claim ends.
            self.note(each, "event", "answer")
            super()._ends(each)

    world = simulator.World(hosts=options["minions"], splay_seconds=options["splay"], offline=0, flapping=0, deaths=0)
    fleet = Watched(world)
    wanted = plan.Wanted(simulator.PACKAGE, simulator.NEW, canary=0, percents=[100])
    simulator.run(world, wanted, fleet, soak_seconds=0, **options["settings"])
    return fleet.seen


# --- what became of it ---------------------------------------------------------------------------------------------------------


def quantile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else None


def peak(points):
    """The highest sum of values within a second, of (time, value)."""
    window, total, most = collections.deque(), 0.0, 0.0
    for at, value in sorted(points):
        window.append((at, value))
        total += value
        while window[0][0] <= at - 1:
            total -= window.popleft()[1]
        most = max(most, total)
    return most


def report(options):
    """What the master did between options["since"] and options["until"]: requests by command and without jobs, sign-ins, the most within a second,
    the time that workers took; how long the minion that stands by had to wait; and, of simulated minions, what they did, and how long it took."""
    since, until = options["since"], options["until"]
    within = [line for line in lines(options["count"]) if since <= line.get("at", 0) <= until]
    requests = [line for line in within if "command" in line and line["command"] != STAND_BY]
    commands = collections.Counter()
    for line in requests:
        commands[line["command"]] += line["runs"]
    own = [line for line in requests if line["command"] not in JOBS]
    waits = [line["seconds"] for line in lines(options["stand_by"]) if since <= line.get("due", 0) <= until]
    made = [line for path in options["made"] for line in lines(path) if "act" in line and since <= line["at"] <= until]
    signed = [line["seconds"] for line in made if line["act"] == "sign_in" and not line["error"]]
    print(json.dumps({
        "seconds": until - since, "commands": commands, "requests": sum(commands.values()), "own": sum(line["runs"] for line in own),
        "sign_ins": sum("sign_in" in line and line["act"] == "accept" for line in within),
        "started": len({line["started"] for line in within if "started" in line}),
        "peak": peak((line["at"], line["runs"]) for line in requests), "own_peak": peak((line["at"], line["runs"]) for line in own),
        "sign_ins_peak": peak((line["at"], 1) for line in within if "sign_in" in line),
        "worker_seconds": sum(line["runs"] * line["seconds"] for line in requests),
        "handled_p50": quantile([line["seconds"] for line in requests], 0.5), "handled_p99": quantile([line["seconds"] for line in requests], 0.99),
        "waited_p50": quantile(waits, 0.5), "waited_p99": quantile(waits, 0.99), "waited_most": max(waits, default=None),
        "sign_in_p50": quantile(signed, 0.5), "sign_in_p99": quantile(signed, 0.99), "made": len(made),
        "failed": sum(bool(line["error"]) for line in made), "errors": sorted({line["error"] for line in made if line["error"]})[:5],
    }))  # fmt: skip


if __name__ == "__main__":
    verb, given = sys.argv[1], json.loads(sys.argv[2])
    if verb in ("stand-by", "generate"):
        asyncio.run({"stand-by": stand_by, "generate": generate}[verb](given))
    else:
        {"count": count, "report": report}[verb](given)
