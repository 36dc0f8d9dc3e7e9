"""The driver with a bus that exists only as values. Run by `scripts/lint`; needs no Salt."""

import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

from saltext.sidle.fleet import answers, beginning, driver, jobs, records, states
from saltext.sidle.fleet import plan as planning

NEW, OLD = "3007.17-1", "3006.30-1"


def status(current=OLD, **more):
    return {
        "instance": "salt-minion", "current": current, "installed": [OLD, NEW], "supervisor": {"version": "1"}, "hold": None, "switch": None,
        "last": None, **more,
    }  # fmt: skip


def plan(canary=1, **hosts):
    facts = {each: {"family": "RedHat", "unseen_days": 0, "releases": [], "status": status(), **more} for each, more in hosts.items()}
    return planning.make(facts, planning.Wanted("salt-minion", NEW, canary=canary, percents=[100]))


class Bus:
    """What was sent; `away`: no job can be published. `says`: what each function's asked hosts answer."""

    unchecked = None

    def __init__(self, **says):
        self.sent, self.away, self.says = [], False, says

    def publish(self, ids, function, arguments=(), kwarg=None, kind=None):
        if self.away and ids:
            raise jobs.Away("the master takes no jobs")
        if ids:
            self.sent.append((function, sorted(ids)))

    def ask(self, ids, function, arguments=(), kwarg=None, seconds=20, read=lambda told: told):
        self.publish(ids, function)
        return {each: answers.taken(read, told) for each, told in self.says.get(function.rpartition(".")[2], {}).items() if each in ids}

    def events(self, _seconds):
        return iter(())

    def of(self, function):
        return [ids for name, ids in self.sent if name == function]


class Drivers(unittest.TestCase):
    def setUp(self):
        place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, place)
        self.records = records.Records(os.path.join(place, "records"), os.path.join(place, "own"))
        self.now = 0.0
        ticks = mock.patch.object(driver, "TICK_SECONDS", 0)
        ticks.start()
        self.addCleanup(ticks.stop)

    def record(self, made, **settings):
        return {**beginning.new("r1", made, 0.0, **settings), "splay": "60s"}

    def driver(self, record, bus):
        return driver._Driver(record, bus, self.records, lambda: self.now)

    def step(self, own, seconds):
        for _ in range(seconds // 2):
            self.now += 2
            own.step()

    def test_while_the_master_is_away_nobody_is_silent_and_no_soak_passes(self):
        bus = Bus()
        own = self.driver(self.record(plan(a={}, b={}), soak_seconds=100, patience_seconds=300), bus)
        own.begin()
        self.step(own, 20)
        canary = bus.of("sidle.switch")[0]
        bus.away = True
        self.step(own, 3000)
        self.assertEqual(own._own.counts(), {"ordered": 1, "waiting": 1})
        self.records.ask_driver("r1", "pause", "lunch")
        self.step(own, 2)
        self.assertEqual(self.records.read("r1")["status"], "halted", "a word is on record at once")
        own._own.resume()
        bus.away = False
        self.step(own, 20)
        own._own.on_status(self.now, canary[0], status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None}))
        self.step(own, 30)
        bus.away = True
        self.step(own, 3000)
        self.assertEqual(own._own.counts(), {"done": 1, "waiting": 1})
        bus.away = False
        self.step(own, 20)
        self.assertEqual(len(bus.of("sidle.switch")), 1, "most of its soak is to come")
        self.step(own, 120)
        self.assertEqual(len(bus.of("sidle.switch")), 2)

    def test_a_pause_of_the_machine_and_a_clock_that_is_set_are_no_silence(self):
        bus = Bus()
        own = self.driver(self.record(plan(a={}, b={}), patience_seconds=300), bus)
        own.begin()
        self.step(own, 20)
        for jump in (1200, 86_400, -7200):
            with self.assertLogs(driver.log, "WARNING"):
                self.now += jump
                own.step()
            self.assertEqual(own._own.counts(), {"ordered": 1, "waiting": 1}, jump)
            asked = len(bus.of("sidle.status"))
            self.step(own, 40)
            self.assertGreater(len(bus.of("sidle.status")), asked, "it is asked again in time")
        # Also while the master is away, and once only.
        bus.away = True
        self.step(own, 40)
        with self.assertLogs(driver.log, "WARNING"):
            self.now += 1200
            own.step()
        bus.away = False
        self.step(own, 40)
        self.assertLess(self.now - own._own.in_flight[bus.of("sidle.switch")[0][0]]["answered"], 300)
        self.step(own, 300)
        self.assertEqual(own._own.counts(), {"lost": 1, "waiting": 1}, "a silence is one")

    def test_what_has_not_begun_leaves_a_record_only_if_nobody_could_say_why(self):
        bus = Bus()
        bus.away = True
        own = self.driver(self.record(plan(a={})), bus)
        with self.assertRaises(states.RolloutError):
            own.begin()
        self.assertEqual(self.records.read("r1")["status"], "halted")
        self.records.remove("r1")
        taken = {"code": 12, "error": {"class": "conflict", "message": "it belongs to rollout r0"}}
        bus = Bus(claim={"a": taken})
        with self.assertRaisesRegex(states.RolloutError, "a: it belongs to rollout r0"):
            self.driver(self.record(plan(a={}, b={})), bus).begin()
        self.assertFalse(self.records.has("r1"))
        self.assertEqual((bus.of("sidle.claim"), bus.of("sidle.unclaim")), ([["a", "b"], ["a"]], [["a", "b"]]), "asked twice")

    def test_a_host_of_another_rollout_does_not_keep_the_others_from_a_rollout_that_is_on_record(self):
        taken = {"code": 12, "error": {"class": "conflict", "message": "it belongs to rollout r0", "reason": "other-rollout"}}
        record = self.record(plan(a={}, b={}, c={}))
        self.records.write(record)
        own = self.driver(record, Bus(claim={"a": taken}))
        own.begin()
        self.assertEqual((record["hosts"]["a"]["state"], record["hosts"]["a"]["text"]), ("refused", "it belongs to rollout r0"))
        self.assertEqual((record["hosts"]["b"]["state"], record["epoch"]), ("waiting", 2))
        # Most of them: another rollout has taken them all. And a newer driver of this rollout ends this one.
        newer = {"code": 12, "error": {"class": "conflict", "message": "epoch 2 is over, another driver goes on with epoch 9"}}
        for told, error in ((taken, states.RolloutError), (newer, records.Superseded)):
            before = json.dumps(record["hosts"])
            with self.assertRaisesRegex(error, "2 minions refuse it") as raised:
                self.driver(record, Bus(claim={"b": told, "c": told})).begin()
            self.assertEqual("sidle.resume r1 take_over=True" in str(raised.exception), told is newer)
            self.assertEqual((json.dumps(record["hosts"]), self.records.read("r1")["epoch"]), (before, 2))
        # One of them alone may say anything.
        self.driver(record, Bus(claim={"c": newer})).begin()
        self.assertEqual([record["hosts"][each]["state"] for each in "abc"], ["refused", "waiting", "refused"])

    def test_one_host_does_not_keep_the_others_from_their_way_back(self):
        taken = {"code": 12, "error": {"class": "conflict", "message": "it belongs to rollout r0", "reason": "other-rollout"}}
        former = self.record(plan(a={}, b={}, c={}), budget=1, family_budget=1)
        for host in former["hosts"].values():
            host["state"] = "done"
        back = {**beginning.back("r1-back", former, None, 0.0), "splay": "60s"}
        bus = Bus(claim={"a": taken})
        own = self.driver(back, bus)
        own.begin()
        self.step(own, 2)
        self.assertEqual((own._own.counts(), bus.of("sidle.rollback")), ({"refused": 1, "ordered": 2}, [["b", "c"]]))
        back = {**beginning.back("r1-back-2", former, None, 0.0), "splay": "60s"}
        with self.assertRaisesRegex(states.RolloutError, "2 minions refuse it"):
            self.driver(back, Bus(claim={"a": taken, "b": taken})).begin()
        self.assertFalse(self.records.has("r1-back-2"))

    def test_of_two_masters_one_drives(self):
        def claims(bus, record, ids):
            """As hosts take them."""
            bus.publish(ids, "sidle.claim")
            epoch, over = record["epoch"], {"class": "conflict", "message": "another driver goes on"}
            told = {each: {"error": over} if epoch < known[each] else {} for each in ids}
            known.update((each, max(epoch, known[each])) for each in ids)
            return told

        known = dict.fromkeys("abc", 1)
        self.records.write(self.record(plan(a={}, b={}, c={})))
        with mock.patch.object(driver.claims, "_asked", claims):
            # The other master has a copy, and goes on.
            known.update(dict.fromkeys("abc", 2))
            with self.assertRaisesRegex(records.Superseded, "this record is older than what the minions know"):
                self.driver(self.records.read("r1"), Bus()).begin()
            self.assertEqual((known, self.records.read("r1")["epoch"]), (dict.fromkeys("abc", 2), 1))
            # A driver that is killed before hosts hear of its epoch, and its successor.
            known.update(dict.fromkeys("abc", 1))
            bus = Bus()
            with mock.patch.object(driver.Rollout, "go_on", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                self.driver(self.records.read("r1"), bus).begin()
            self.driver(self.records.read("r1"), bus).begin()
            self.assertEqual((known, self.records.read("r1")["epoch"]), (dict.fromkeys("abc", 2), 2))
            bus = Bus()
            self.driver(self.records.read("r1"), bus).begin()
            self.assertEqual((known, bus.of("sidle.claim")), (dict.fromkeys("abc", 3), [["a", "b", "c"]] * 2))

    def test_a_host_that_is_almost_alone_to_answer_ends_no_driver(self):
        def claims(_bus, record, _ids):
            """The others are silent."""
            return {"a": {"error": {"class": "conflict", "message": "no"}} if record["epoch"] > 1 else {}}

        self.records.write(self.record(plan(a={}, b={}, c={})))
        with mock.patch.object(driver.claims, "_asked", claims):
            own = self.driver(self.records.read("r1"), Bus())
            own.begin()
        self.assertEqual(own._own.counts(), {"refused": 1, "waiting": 2})

    def test_a_late_host_costs_no_job_to_the_others(self):
        record = self.record(plan(a={}, b={}, z={"unseen_days": 2}))
        for each in "ab":
            record["hosts"][each].update(state="done")
        record.update(status="late", wave=record["waves"] - 1)
        self.records.write(record)
        bus = Bus(status={"z": {"code": 0, "instances": [status()]}})
        own = self.driver(record, bus)
        own.begin()
        self.step(own, 2)
        self.assertEqual(bus.of("sidle.switch"), [["z"]])
        own._own.on_status(self.now, "z", status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None}))
        self.step(own, 2)
        self.assertFalse(own.goes_on())
        own.end()
        self.assertEqual((record["status"], bus.of("sidle.unclaim")), ("ended", [["z"]]))

    def test_a_halt_waits_for_what_is_on_its_way_but_not_for_ever(self):
        own = self.driver(self.record(plan(a={}, b={})), Bus())
        own.begin()
        self.step(own, 20)
        self.records.ask_driver("r1", "abort", "a wrong release")
        self.step(own, 2)
        self.assertTrue(own.goes_on())
        self.step(own, driver.REST_SECONDS + 2)
        self.assertFalse(own.goes_on())
        self.assertEqual(own._own.counts(), {"ordered": 1, "waiting": 1})

    def test_what_rests_after_a_halt_goes_on_when_a_person_resumes_it(self):
        bus = Bus()
        own = self.driver(self.record(plan(a={}, b={}), soak_seconds=1), bus)
        own.begin()
        self.step(own, 20)
        canary, other = bus.of("sidle.switch")[0][0], {"a": "b", "b": "a"}[bus.of("sidle.switch")[0][0]]
        self.records.ask_driver("r1", "pause", "lunch", "ann")
        self.step(own, 20)
        self.assertEqual(own._record["status"], "halted")
        self.records.ask_driver("r1", "resume", "", "bob")
        self.step(own, 2)
        self.assertEqual([(act["act"], act["by"]) for act in own._record["acts"]], [("pause", "ann"), ("resume", "bob")])
        own._own.on_status(self.now, canary, status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None}))
        self.step(own, 20)
        self.assertEqual(bus.of("sidle.switch"), [[canary], [other]])
        # At the last moment, too: then the claims stay.
        self.records.ask_driver("r1", "pause", "lunch", "ann")
        self.step(own, 2)
        self.records.ask_driver("r1", "resume", driver.AGAIN, "bob")
        self.assertFalse(own.end())
        self.assertEqual((own._record["status"], bus.of("sidle.unclaim")), ("running", []))

    def test_an_abort_cancels_what_waits_for_a_window(self):
        bus = Bus()
        own = self.driver({**self.record(plan(a={}, b={})), "at_window": True}, bus)
        own.begin()
        self.step(own, 20)
        canary = bus.of("sidle.switch")[0]
        own._own.on_status(self.now, canary[0], status(switch={"id": 1, "to": NEW, "phase": "scheduled"}))
        self.records.ask_driver("r1", "abort", "a wrong release")
        self.step(own, 2)
        self.assertEqual(bus.of("sidle.cancel"), [canary], "at once: its window may open while the driver listens")
        own._own.on_status(self.now, canary[0], status(switch={"id": 1, "to": NEW, "phase": "scheduled"}))
        self.step(own, 2)
        self.assertEqual(bus.of("sidle.cancel"), [canary, canary], "again, if that was lost")
        own._own.on_status(self.now, canary[0], status(last={"id": 1, "to": NEW, "result": "cancelled", "failure": None}))
        self.assertFalse(own.goes_on())
        own.end()
        self.assertEqual((bus.of("sidle.cancel"), bus.of("sidle.unclaim")), ([canary, canary], [["a", "b"]]))

    def test_an_abort_also_cancels_what_waits_where_the_host_was_lost_or_its_driver_died_before_it_heard(self):
        waits = {"code": 0, "instances": [status(switch={"id": 1, "to": NEW, "phase": "scheduled"})]}
        for state, scheduled, says in (("lost", True, {}), ("ordered", False, {"a": waits}), ("lost", False, {"a": waits})):
            bus, record = Bus(status=says), {**self.record(plan(a={}, b={})), "at_window": True, "status": "aborted"}
            record["hosts"]["a"].update(state=state, scheduled=scheduled, ordered=0.0, orders=1, before=0)
            driver.unclaim(bus, record, ["a", "b"])
            self.assertEqual(bus.of("sidle.cancel"), [["a"]], (state, scheduled))
        # Somebody else's, by the same status.
        other = {"code": 0, "instances": [status(switch={"id": 1, "to": "3008.5-1", "phase": "scheduled"})]}
        bus, record = Bus(status={"a": other}), {**self.record(plan(a={}, b={})), "at_window": True, "status": "aborted"}
        record["hosts"]["a"].update(state="lost")
        driver.unclaim(bus, record, ["a", "b"])
        self.assertEqual(bus.of("sidle.cancel"), [])

    def test_a_host_that_answers_nonsense_is_refused_and_ends_no_rollout(self):
        failed = {"id": 1, "to": NEW, "result": "rolled-back", "failure": {"phase": "probation", "cause": b"\xff", "text": "x"}}
        nonsense = [
            {"instances": 5}, {"instances": [{}, 3]}, None, [1], b"no", float("nan"), {"instances": [{"instance": "salt-minion", "switch": {"to": NEW}}]},
            {"instances": [{"instance": "salt-minion", "last": "yesterday"}]}, {"instances": [status(last=failed)]},
        ]  # fmt: skip
        for told in nonsense:
            with self.subTest(told), self.assertLogs(driver.log, "WARNING") as logged:
                self.records.remove("r1") if self.records.has("r1") else None
                own = self.driver(self.record(plan(0, a={}, b={}), budget=2, family_budget=2), Bus())
                own.begin()
                self.step(own, 2)
                own._take("status", "a", told)
                self.step(own, 2)
                host = self.records.read("r1")["hosts"]["a"]
                self.assertEqual((host["state"], host["cause"]), ("refused", "answer"))
                self.assertTrue(host["text"].startswith("cannot read its answer: "), host)
                self.assertEqual(own._own.counts(), {"ordered": 1, "refused": 1}, "the other one goes")
                self.assertTrue(all("cannot read its answer" in line for line in logged.output), logged.output)

    def test_what_salt_itself_says_is_no_nonsense(self):
        own = self.driver(self.record(plan(a={}, b={})), Bus())
        own.begin()
        self.step(own, 4)
        own._take("status", next(iter(own._own.in_flight)), "'sidle.status' is not available.")
        self.assertEqual(own._own.counts(), {"ordered": 1, "waiting": 1}, "it may be between two minions")

    def test_without_a_job_cache_nothing_begins(self):
        bus = Bus()
        bus.unchecked = "this master keeps no returns"
        with self.assertRaisesRegex(states.RolloutError, "this master keeps no returns"):
            self.driver(self.record(plan(a={})), bus).begin()
        self.assertEqual((bus.sent, self.records.names()), ([], []))

    def test_a_driver_that_takes_over_has_the_newest_epoch_that_can_be(self):
        record = self.record(plan(a={}, b={}, c={}, d={}, e={}, f={}), budget=9, family_budget=9)
        mine = {"id": "r1", "epoch": 7, "until": "2026-12-24T07:00:00Z"}
        claims = {
            "a": mine, "b": {**mine, "epoch": 10**30}, "c": {**mine, "epoch": "x"}, "d": "x", "e": {**mine, "id": "r2", "epoch": 9000},
            "f": {**mine, "epoch": 900_000},
        }  # fmt: skip
        told = {each: {"code": 0, "instances": [status(rollout=claim)]} for each, claim in claims.items()}
        with self.assertLogs(driver.log, "WARNING"):
            driver.take_newest_epoch(Bus(status=told).ask, record, lambda: 9.0)
        self.assertEqual(record["epoch"], 7)
        refused = [each for each, host in record["hosts"].items() if host["state"] == "refused"]
        self.assertEqual(sorted(refused), ["b", "c", "d", "f"])
        self.assertIn("epoch 900000, and this record 1", record["hosts"]["f"]["text"])

    def test_an_offline_host_that_comes_back_with_nonsense_is_refused(self):
        record = self.record(plan(a={}, z={"unseen_days": 2}), budget=2, family_budget=2)
        record["hosts"]["a"]["state"] = "done"
        record.update(status="late", wave=record["waves"] - 1)
        self.records.write(record)
        own = self.driver(record, Bus(status={"z": {"code": 0, "instances": [status(installed=5)]}}))
        with self.assertLogs(driver.log, "WARNING"):
            own.begin()
        self.assertEqual((own._own.counts(), record["status"]), ({"done": 1, "refused": 1}, "ended"))

    def test_a_host_whose_answer_nobody_could_read_is_asked_before_a_way_back(self):
        record = self.record(plan(a={}, b={}))
        for each in "ab":
            record["hosts"][each].update(state="refused", cause="answer", text="cannot read its answer: it has no last")
        found = {"a": {"code": 0, "instances": [status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None})]}, "b": {"code": 0}}
        with self.assertLogs(driver.log, "WARNING"):
            driver.ask_unsure(Bus(status=found).ask, record, lambda: 9.0)
        self.assertEqual([states.is_unsure(record["hosts"][each]) for each in "ab"], [False, True])
        self.assertEqual(record["hosts"]["a"]["state"], "done")

    def test_a_word_is_not_lost_with_the_driver_or_on_a_full_disk(self):
        own = self.driver(self.record(plan(a={}, b={})), Bus())
        own.begin()
        self.records.ask_driver("r1", "abort", "a wrong release")
        with mock.patch.object(records.os, "fsync", side_effect=OSError(28, "No space left on device")), self.assertRaises(OSError):
            self.step(own, 2)
        self.assertEqual(self.records.read("r1")["status"], "running")
        own = self.driver(self.records.read("r1"), Bus())
        own.begin()
        self.step(own, 2)
        self.assertEqual(self.records.read("r1")["status"], "aborted")

    def test_words_that_are_on_record_are_not_applied_once_more(self):
        own = self.driver(self.record(plan(a={}, b={})), Bus())
        own.begin()
        self.records.ask_driver("r1", "pause", "lunch", "ann")
        self.records.ask_driver("r1", "resume", "", "bob")
        words = os.path.join(self.records._own, "r1.words")
        shutil.copy(words, f"{words}.kept")
        self.step(own, 2)
        # It was killed after it had written the record.
        os.replace(f"{words}.kept", words)
        self.records.ask_driver("r1", "pause", "tea", "cyn")
        own = self.driver(self.records.read("r1"), Bus())
        own.begin()
        self.step(own, 4)
        self.assertEqual([act["by"] for act in self.records.read("r1")["acts"]], ["ann", "bob", "cyn"])

    def test_a_word_that_comes_last_is_heard(self):
        bus = Bus()
        record = self.record(plan(a={}))
        own = self.driver(record, bus)
        own.begin()
        self.records.ask_driver("r1", "abort", "a wrong release")
        own.end()
        self.assertEqual((record["status"], bus.of("sidle.unclaim")), ("aborted", [["a"]]))


if __name__ == "__main__":
    unittest.main()
