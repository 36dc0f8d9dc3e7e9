"""
One minion answers nonsense, thousands of times: the others are planned and rolled out, and no nonsense gets into a plan, a page, a record or an answer of
`sidle.why`. `SIDLE_FUZZ_SEED` and `SIDLE_FUZZ_ROUNDS` name other answers, and more. Run by `scripts/lint`; needs no Salt.
"""

import copy
import datetime
import json
import logging
import os
import random
import shutil
import socket
import tempfile
import threading
import time
import unittest
from unittest import mock

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import (
        answers,
        asking,
        beginning,
        causes,
        collect,
        driver,
        evidence,
        masters,
        page,
        records,
        table,
        values,
        why,
    )
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.fleet.rollout import Rollout

SEED = int(os.environ.get("SIDLE_FUZZ_SEED", "1"))
#: So many plans, rollouts and questions why; each one has several answers with nonsense: some thousands in all.
ROUNDS = int(os.environ.get("SIDLE_FUZZ_ROUNDS", "400"))

NEW, OLD, TIME = "3007.17-1", "3006.30-1", "2026-11-25T09:00:00Z"
JID = "20260921141320000000"

#: What a minion says that has nothing to hide, by the function that it is asked.
STATUS = {
    "code": 0, "instances": [{
        "instance": "salt-minion", "package": "salt-minion", "current": OLD, "previous": None, "installed": [OLD, NEW], "unread": [],
        "supervisor": {"version": "0.1.0", "agent": {"release": OLD, "reaches": ["m1", "m2"], "lacks": None}},
        "hold": None, "switch": None, "last": {"id": 3, "to": OLD, "result": "committed", "failure": None, "story": []}, "rollout": None,
    }],
}  # fmt: skip
HELD = copy.deepcopy(STATUS)
HELD["instances"][0] |= {
    "hold": {"by": "ann", "reason": "year's end", "until": TIME, "scope": "upgrades"}, "rollout": {"id": "r2", "epoch": 4, "until": TIME},
    "switch": {"id": 4, "to": NEW, "phase": "probation", "failure": None},
    "last": {"id": 3, "to": NEW, "result": "rolled-back", "failure": {"phase": "probation", "cause": "release", "text": "it ended"}},
}  # fmt: skip
ERROR = {"code": 8, "error": {"class": "no-space", "code": 8, "message": "3 MiB are free", "hint": None}}
GOOD = {
    "sidle.status": [STATUS, HELD, ERROR, "'sidle.status' is not available."],
    "sidle.list": [{"code": 0, "releases": [{"package": "salt-minion", "release": NEW, "marks": [{"mark": "previous", "reason": "it ended"}], "problem": None}]}, ERROR],
    "config.get": [["m1", "m2:4506"], "m1"],
    "grains.item": [{"os_family": "RedHat", "saltversion": "3006.30", "site": "lab"}, {"os_family": "Suse", "saltversion": "3006.30", "site": ["lab", 1]}],
    "sidle.rehearse": [{"code": 0, "notes": ["a module is missing"], "mode": "idle"}, ERROR],
    "sidle.master_is": [{"code": 0, "master": {"master": "m1"}}, ERROR, "'sidle.master_is' is not available."],
    "sidle.upgrade": [{"code": 0, "notes": [], "mode": "overlap", "release": NEW}, ERROR],
    "sidle.job": [{
        "now": 1_790_000_600.0, "started": 1_789_990_000.0, "master": "m1", "masters": ["m1"], "cache_jobs": False, "log": ["[INFO] Executing command"],
        "log_since": 1.0, "returned_at": None, "log_is_detailed": True, "claimed": True, "stale": 12, "cached": False, "queued": None,
        "switches": [{"id": 7, "purpose": "switch", "to": NEW, "mode": "now", "result": "committed", "begun": 1.0, "ended": 2.0, "down": 1_790_000_001, "up": 1_790_000_009}],
        "ended": {"at": TIME, "release": OLD, "pid": 9, "how": "was killed", "unfinished": [{"id": JID, "what": "state.apply", "pid": 10}]},
    }, {**ERROR, "master": "m1", "masters": ["m1"], "cache_jobs": False}, "'sidle.job' is not available."],
    "saltutil.find_job": [{"pid": 4711, "arg": []}, {}],
    "test.version": ["3006.30"], "match.glob": [True, "Traceback: boom"],
}  # fmt: skip
ORDERS = [{"code": 0}, {"code": 3}, {"code": 4, "switch": 5, "pending": True}, ERROR, {"code": 12, "error": {"class": "conflict", "message": "another"}}]
CACHED = [{"os_family": "RedHat", "saltversion": "3006.30", "site": "lab"}]
LOADS = [{"fun": ["state.apply"], "tgt": ["web17"], "tgt_type": "list", "user": "root", "Minions": ["web17"], "jid": JID}]


class Nonsense:
    """Answers that were changed at random places."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self):
        deep = []
        for _ in range(self.random.choice((3, 200))):
            deep = [deep]
        return self.random.choice((
            None, True, False, 0, -1, 5, 2**53, 2**64, 10**30, -(10**30), 1.5, float("nan"), float("inf"), -1e308, "", "x", "x" * 200, "x" * 5000, "\x1b]0;x\x07", "a\u202eb",
            "a\nRemedy:\n b", "<script>alert(1)</script>", "../../etc/passwd", "3007.17-1", "\ud800", "\U0001f4a3" * 900, b"", b"\xff\xfe", [], {}, [[]], [None], [b"x"],
            ["x"] * 2000, [f"n{number}" for number in range(300)], {"x": 1}, {b"\xff": b"\xff"}, {"error": "no"}, deep, {"id": 1}, datetime.datetime(2026, 1, 1), datetime.datetime.max, (1, 2), {1, 2},
            range(3), object(),
        ))  # fmt: skip

    def of(self, told):
        """A copy with one place changed, or several."""
        told = copy.deepcopy(told)
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            told = self._changed(told)
        return told

    def _changed(self, told):
        if not isinstance(told, (dict, list)) or not told or self.random.random() < 0.08:
            return self.value()
        key = self.random.choice(list(told)) if isinstance(told, dict) else self.random.randrange(len(told))
        act = self.random.random()
        if act < 0.1 and isinstance(told, dict):
            del told[key]
        elif act < 0.2:
            # What nobody asked for, or too much of it.
            told.update({self.random.choice((5, b"x", "x", None)): self.value()}) if isinstance(told, dict) else told.extend([told[key]] * self.random.choice((1, 700)))
        else:
            told[key] = self._changed(told[key]) if self.random.random() < 0.8 else self.value()
        return told


def plain(value, found):
    """What of a value is no plain value for JSON, or is too long."""
    if isinstance(value, dict):
        for key, each in value.items():
            plain(key, found)
            plain(each, found)
    elif isinstance(value, (list, tuple)):
        if len(value) > 500:
            found.append(f"a list of {len(value)}")
        for each in value:
            plain(each, found)
    elif isinstance(value, str):
        if len(value) > 1200 or not value.isprintable():
            found.append(value[:50])
    elif not isinstance(value, (int, float, type(None))) or value != value or (isinstance(value, (int, float)) and abs(value) > 2**53):
        found.append(type(value))
    return found


class Hostile(unittest.TestCase):
    IDS = ("bad", "h1", "h2", "h3", "h4", "h5", "h6")

    def setUp(self):
        self.nonsense = Nonsense(SEED)
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        # What is caught although no reader has found it is logged as an error.
        self.caught = []
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.caught.append(record.getMessage())
        for log in (driver.log, planning.log):
            log.addHandler(handler)
            self.addCleanup(log.removeHandler, handler)
            propagates = mock.patch.object(log, "propagate", False)
            propagates.start()
            self.addCleanup(propagates.stop)

    def assert_plain(self, value, what):
        wrong = plain(value, []), self.caught
        # The story is long, and told only if it is wanted.
        if wrong != ([], []):
            self.fail(f"{wrong}: SIDLE_FUZZ_SEED={SEED}: {str(what)[:2000]}")

    def run_through(self, number, act):
        """So many times; what goes wrong is told with its seed, so that it can be had again."""
        for _ in range(number):
            told = []
            try:
                act(told)
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(f"SIDLE_FUZZ_SEED={SEED}: {type(error).__name__}: {error}: {str(told)[:2000]}") from error

    # --- the plan ---------------------------------------------------------------------------------------------------

    def planned(self, told):
        said = {function: self.nonsense.of(self.nonsense.random.choice(GOOD[function])) for function in (*asking.QUESTIONS, "sidle.master_is", "sidle.rehearse", "sidle.upgrade")}
        kept = self.nonsense.random.random()
        # Some minions answer nonsense to one question alone, and some are silent: the master has their grains.
        said = {function: answer if self.nonsense.random.random() < kept else GOOD[function][0] for function, answer in said.items()}
        is_silent, cached = self.nonsense.random.random() < 0.1, self.nonsense.of(CACHED[0])
        told += [said, is_silent, cached]

        def ask(ids, function, arguments=(), kwarg=None, seconds=None, read=lambda told: told, **_):
            known = {each: said[function] if each == "bad" else GOOD[function][0] for each in ids if not (is_silent and each == "bad")}
            return {each: answers.taken(read, answer) for each, answer in known.items()}

        wanted = planning.Wanted("salt-minion", NEW, by=self.nonsense.random.choice((None, "site")))
        asked = asking.Asking({"id": "m", "cachedir": "/nonexistent"}, ask)
        asked._cached = lambda _: (cached, time.time() - 9 * 86400)
        with mock.patch.object(socket, "getaddrinfo", self.getaddrinfo), mock.patch.object(masters.threading, "Thread", Inline):
            facts, own_masters = asked.facts(self.IDS, wanted)
            return planning.make(facts, wanted, own_masters)

    def getaddrinfo(self, name, *_):
        self.names.append(name)
        if len(name) > 63:
            raise UnicodeError("label too long")
        return [(None, None, None, None, ("127.0.0.1" if name == "m1" else "192.0.2.1", 0))]

    def test_a_plan_has_no_nonsense_and_the_others_go(self):
        refused = 0

        def act(told):
            nonlocal refused
            self.names = []
            made = self.planned(told)
            self.assertEqual({made.hosts[each].verdict for each in self.IDS[1:]}, {"go"}, f"SIDLE_FUZZ_SEED={SEED}")
            refused += made.hosts["bad"].kinds == ["answer"]
            self.assertLessEqual(len(self.names), 20)
            self.assertLessEqual(len(made.masters), 20)
            self.assertLessEqual(len(made.hosts["bad"].notes), 60)
            values = planning.write(made)
            self.assert_plain(values, told)
            text = json.dumps(values, allow_nan=False)
            self.assertLess(len(text), 60_000)
            self.assertEqual(planning.read(json.loads(text)), made)
            self.assert_plain(table.table(made).splitlines() if len(text) < 20_000 else [], told)
            shown = page.render(made, "*", "today").encode()
            self.assertEqual(shown.count(b"<script"), 1)
            self.assertLess(len(shown), 150_000)

        self.run_through(ROUNDS, act)
        self.assertGreater(refused, ROUNDS // 4, "most of them are nonsense")

    def test_names_of_masters_are_looked_up_once_and_no_more_than_so_many(self):
        self.names, many = [], [[f"n{number}-{each}" for each in range(16)] + ["m1"] for number in range(300)]
        own = masters.Masters({"id": "m", "cachedir": "/nonexistent"})
        with mock.patch.object(socket, "getaddrinfo", self.getaddrinfo):
            self.assertEqual(masters.resolved(["y" * 200]), {"y" * 200: set()}, "a name that the resolver does not take")
            for _ in range(2):
                own.look_up(many)
        self.assertEqual(sorted(set(self.names)), sorted(self.names), "each once")
        self.assertLessEqual(len(self.names), 1 + 128)
        self.assertEqual([name for name, master in own.of(["m1", "n1-1"]).items() if master == own.this()], ["m1"], "honest names come first")
        over = threading.Event()
        self.addCleanup(over.set)
        # The resolver waits for the end of this test: who waits for it would never get there.
        with mock.patch.object(socket, "getaddrinfo", lambda *_: over.wait() and []):
            self.assertEqual(masters.resolved(["slow"], 0.1), {})

    # --- the rollout ------------------------------------------------------------------------------------------------

    def test_a_rollout_goes_through_and_its_record_stays_small(self):
        facts = {each: {"family": "RedHat", "unseen_days": 0, "releases": [], "status": answers.status(STATUS, "salt-minion").instance} for each in self.IDS}
        facts["bad"]["status"]["installed"] = [OLD]
        plan = planning.make(facts, planning.Wanted("salt-minion", NEW, canary=0, percents=[100]))
        done = copy.deepcopy(STATUS)
        done["instances"][0] |= {"current": NEW, "last": {"id": 4, "to": NEW, "result": "committed", "failure": None}}
        kept = records.Records(os.path.join(self.place, "records"), os.path.join(self.place, "own"))
        bus, ended = Bus(self.IDS), {}

        def act(told):
            record = {**beginning.new("r1", copy.deepcopy(plan), 0.0, budget=9, family_budget=9, soak_seconds=0), "splay": "60s"}
            record["hosts"]["bad"]["lacks"] = self.nonsense.random.random() < 0.3
            record["hosts"]["bad"]["state"] = self.nonsense.random.choice(("waiting", "waiting", "offline"))
            bus.said = {function: self.nonsense.of(self.nonsense.random.choice(GOOD["sidle.status"] + ORDERS)) for function in ("status", "claim", "release")}
            told += [bus.said]
            driver.take_newest_epoch(bus.ask, record)
            own, now = driver._Driver(record, bus, kept, lambda: 1.0), 1.0
            own._own.next(now)
            for kind, good in (("install", ORDERS), ("switch", ORDERS), ("status", [STATUS, HELD, done])) * 2:
                said = self.nonsense.of(self.nonsense.random.choice(good))
                told.append((kind, said))
                own._take(kind, "bad", said)
                own._own.next(now := now + 200)
                for each in [each for each in self.IDS[1:] if each in own._own.in_flight]:
                    own._take("status", each, done)
            driver.ask_unsure(bus.ask, record)
            self.assertEqual({record["hosts"][each]["state"] for each in self.IDS[1:]}, {"done"})
            self.assertLess(record["epoch"], 100)
            self.assert_plain(record, told)
            text = json.dumps(record, allow_nan=False)
            self.assertLess(len(text), 20_000)
            again = Rollout(json.loads(text))
            again.next(now)
            collect.rollout_line(record, "bad")
            state = record["hosts"]["bad"]["state"]
            ended[state] = ended.get(state, 0) + 1
            if sum(ended.values()) % 50 == 1:
                kept.write(record)
                self.assertEqual(kept.read("r1"), json.loads(text))

        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.run_through(ROUNDS, act)
        self.assertGreater(ended.get("refused", 0), ROUNDS // 4, ended)

    # --- why --------------------------------------------------------------------------------------------------------

    def test_why_answers_whatever_a_minion_says(self):
        found = set()

        def act(told):
            said = {function: GOOD[function][0] for function in ("sidle.job", "saltutil.find_job", "test.version", "match.glob")}
            for function in self.nonsense.random.sample(sorted(said), self.nonsense.random.choice((1, 1, 2, 4))):
                said[function] = self.nonsense.of(self.nonsense.random.choice(GOOD[function]))
            told += [said]
            returned = self.nonsense.of({"return": {"code": 0}, "retcode": 1, "success": False})
            answer = self.answered(said, returned if self.nonsense.random.random() < 0.2 else None)
            found.add(answer.cause)
            self.assert_plain(vars(answer), told)
            self.assertLess(len(why.render(answer)), 40_000)
            json.dumps(vars(answer), allow_nan=False)
            load = answers.taken(answers.load, self.nonsense.of(LOADS[0]))
            if load and not isinstance(load, answers.Unreadable):
                self.assertTrue(all(isinstance(load[key], str) for key in ("fun", "tgt", "tgt_type", "user")))
                self.assertTrue(load["Minions"] is None or all(isinstance(each, str) for each in load["Minions"]))
            self.assertIsInstance(collect.addresses_of(self.nonsense.of({"ipv4": ["10.0.0.1"], "ipv6": ["::2"]})), set)

        self.run_through(ROUNDS, act)
        self.assertGreater(len(found), 4, found)
        self.assertLessEqual(found, {cause.name for cause in causes.CAUSES})

    def answered(self, said, returned=None):
        job = evidence.Job("state.apply", "web*", "glob", "root", 1_790_000_000.0, ["bad"], [])
        known = evidence.Evidence("bad", 1_790_000_600.0, JID, job, keys=frozenset({"accepted"}), master_is_up=True, answers=True)
        collect.said(known, said, "match.glob")
        known.ret = collect._return(returned, 1_790_000_003.0) if returned is not None else None
        return why.answer(known)

    def test_a_host_whose_program_cannot_tell_says_so(self):
        lacks = "cannot run sidle job: this host's sidle 0.0.9 lacks this verb; sidle 0.1.0 or later is needed"
        failure = {"class": "usage", "code": 2, "message": lacks, "hint": None}
        told = {"sidle.job": {"master": "m1", "masters": ["m1", "m2"], "cache_jobs": False, "code": 2, "error": failure}, "match.glob": True}
        answer = self.answered(told)
        self.assertEqual(answer.cause, "undecided")
        self.assertEqual([line for line in answer.missing if "own record" in line], [f"the minion's own record of the job: {lacks}"])
        self.assertFalse([line for line in answer.missing if "record of taken jobs" in line], "one reason is enough")

    # --- each field -------------------------------------------------------------------------------------------------

    def test_each_field_that_is_read_is_read_with_care(self):
        readers = [
            (lambda told: answers.status(told, "salt-minion"), HELD), (lambda told: answers.releases(told, "salt-minion"), GOOD["sidle.list"][0]),
            (answers.job, GOOD["sidle.job"][0]), (answers.dry_run, GOOD["sidle.rehearse"][0]), (answers.dry_run, ERROR), (answers.order, ERROR),
        ]  # fmt: skip
        for read, good in readers:
            self.assert_plain(read(good), good)
            for change in changes(good, (None, "", [], {}, b"\xff", float("nan"), datetime.datetime.max, 10**30, {1}, object(), "\x1b" * 9000)):
                value = answers.taken(read, change)
                if not isinstance(value, answers.Unreadable):
                    self.assert_plain(value, change)
                if read is answers.job:
                    self.assert_plain(vars(self.answered({"sidle.job": change})), change)

    def test_numbers_without_end_are_no_values_of_a_grain(self):
        for told in (10**30, 10**5000, float("nan"), float("inf"), b"x", {}, [[]], ["x"] * 65):
            self.assertIsInstance(answers.taken(lambda told: answers.grains(told, ["site"]), {"site": told}), answers.Unreadable)

    def test_lists_and_versions_have_limits(self):
        self.assertEqual(len(answers.masters([f"m{number}" for number in range(16)])), 16)
        self.assertIsInstance(answers.taken(answers.masters, [f"m{number}" for number in range(17)]), answers.Unreadable)
        notes = answers.dry_run({"code": 0, "notes": ["x"] * 30})["notes"]
        self.assertEqual((len(notes), notes[-1]), (21, "and 10 more notes"))
        self.assertEqual([collect.version_of(told) for told in (b"3006", 3006, ["x"], "3006.30")], [None, None, None, "3006.30"])

    def test_a_text_is_cut_at_its_limit_with_a_mark(self):
        self.assertEqual(values.text("a\n\t b"), "a b")
        for long in ("x" * 50_000_000, "x " * 500, " " * 10_000 + "x"):
            cut = values.text(long)
            self.assertTrue(len(cut) <= values.TEXT_CHARACTERS and cut.endswith(values.CUT), cut)
        self.assertEqual(values.text("x" * values.TEXT_CHARACTERS), "x" * values.TEXT_CHARACTERS)


def changes(told, values):
    """A copy for each place and each value there."""
    for key in list(told) if isinstance(told, dict) else range(len(told)):
        for value in values:
            changed = copy.copy(told)
            changed[key] = value
            yield changed
        inner = changes(told[key], values) if isinstance(told[key], (dict, list)) else ()
        for value in [*inner, *([told[key] * 3000] if isinstance(told[key], list) else ())]:
            changed = copy.copy(told)
            changed[key] = value
            yield changed
        if isinstance(told, dict):
            yield {name: value for name, value in told.items() if name != key}


class Inline:
    """A thread that has ended when it has begun: a thousand real ones take their time."""

    def __init__(self, target, daemon):
        self.start, self.join = target, lambda _seconds: None


class Bus:
    """A bus on which one minion answers nonsense."""

    unchecked = None

    def __init__(self, ids):
        self.ids, self.said = ids, {}

    def publish(self, *_, **__):
        pass

    def ask(self, ids, function, arguments=(), kwarg=None, seconds=20, read=lambda told: told):
        good = {"status": STATUS, "claim": {"code": 0}, "release": {"code": 0}}
        name = function.rpartition(".")[2]
        return {each: answers.taken(read, self.said[name] if each == "bad" else good[name]) for each in ids}

    def events(self, _seconds):
        return iter(())


if __name__ == "__main__":
    unittest.main()
