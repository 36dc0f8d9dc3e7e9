"""Who is told of a rollout, and what stays of it: event, command, file and page. Run by `scripts/lint`; needs no Salt."""

import json
import os
import shutil
import stat
import tempfile
import unittest
from unittest import mock

import bare_salt
from saltext.sidle.fleet import acts, beginning, driver, jobs, records, states
from saltext.sidle.fleet import plan as planning
from test_driver import NEW, OLD, Bus, status

with bare_salt.importable():
    from saltext.sidle.fleet import announcing, meanwhile, report, report_page, rollouts

DOWN = {"seconds": 30.5, "begun": 1_790_000_000, "ended": 1_790_000_030}
EVIL = '<script>alert(1)</script>"\x1b[2J'


def hosts(**more):
    return {each: {"family": "RedHat", "unseen_days": 0, "releases": [], "status": status(), **facts} for each, facts in more.items()}


class Telling(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        self.records = records.Records(os.path.join(self.place, "records"), os.path.join(self.place, "own"))
        self.now, self.fired, self.missed = 1_790_000_100.0, [], {"a": 3}
        for patch in (
            mock.patch.object(driver, "TICK_SECONDS", 0),
            mock.patch.object(meanwhile, "numbers", lambda _, found: ({each: DOWN for each in found if found[each].get("downtime")}, self.missed, True)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def announcer(self, **own):
        return announcing.Announcer({"cachedir": self.place, "id": "m1", "sidle": own}, lambda tag, data: self.fired.append((tag, data)), lambda: self.now)

    def script(self, text):
        path = os.path.join(self.place, "called")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, stat.S_IRWXU)
        return path

    def record(self, facts, **settings):
        made = planning.make(facts, planning.Wanted("salt-minion", NEW, canary=1, percents=[100]))
        record = {**beginning.new("r1", made, 1_790_000_000.0, **settings), "splay": "60s"}
        acts.note(record, 1_790_000_000.0, "rollout", "sudo_ann")
        return record

    def driver(self, record, announcer):
        own = driver._Driver(record, Bus(), self.records, lambda: self.now, announcer)
        own.begin()
        return own

    def step(self, own, seconds=4):
        for _ in range(seconds // 2):
            self.now += 2
            own.step()

    def halted(self, **own):
        """Returns a driver whose first host has failed."""
        halted = self.driver(self.record(hosts(a={}, b={}), budget=0), self.announcer(**own))
        self.step(halted)
        first = next(iter(halted._own.in_flight))
        failure = {"phase": "probation", "cause": "release", "text": EVIL}
        halted._own.on_status(self.now, first, status(last={"id": 1, "to": NEW, "result": "rolled-back", "failure": failure, "downtime": DOWN}))
        self.step(halted)
        return halted

    def read(self, end):
        with open(os.path.join(self.place, f"sidle/reports/r1.{end}"), encoding="utf-8") as file:
            return file.read()

    def test_a_halt_fires_an_event_and_calls_the_command_of_the_site_once(self):
        said = os.path.join(self.place, "said")
        own = self.halted(on_halt=[self.script(f'echo "$1 $SIDLE_ROLLOUT $SIDLE_STATUS" >>{said}; cat >>{said}'), "it's"])
        self.step(own, 40)
        self.assertEqual([tag for tag, _ in self.fired], ["salt/sidle/rollout/r1/running", "salt/sidle/rollout/r1/halted"])
        data = self.fired[1][1]
        self.assertEqual((data["counts"], data["master"], data["last_act_by"]), ({"failed": 1, "waiting": 1}, "m1", "sudo_ann"))
        with open(said, encoding="utf-8") as file:
            line, given = file.read().split("\n", 1)
        self.assertEqual((line, json.loads(given)), ("it's r1 halted", data), "once, without a shell")
        self.assertEqual(self.records.read("r1")["announced"]["problems"], [])
        # After a resume the next halt is told again.
        own._own.resume(again=True)
        self.step(own)
        self.records.ask_driver("r1", "pause", "lunch", "bob")
        self.step(own)
        self.assertEqual([tag.rsplit("/")[-1] for tag, _ in self.fired], ["running", "halted", "running", "halted"])
        self.assertEqual((self.fired[-1][1]["why"], self.fired[-1][1]["last_act_by"]), ("lunch", "bob"))

    def test_what_fails_is_a_line_and_no_end(self):
        cases = [
            (self.script("echo no route to pager; exit 3"), "ended with code 3: no route to pager"), ("pager --now", "begins with the whole path"),
            (["/nowhere/pager"], "No such file"), ([], None), (5, "cannot run on_halt"),
        ]  # fmt: skip
        for command, words in cases:
            with self.subTest(command):
                self.records.remove("r1") if self.records.has("r1") else None
                with self.assertLogs(announcing.log, "ERROR") if words else self.assertNoLogs(announcing.log, "ERROR"):
                    own = self.halted(on_halt=command)
                problems = self.records.read("r1")["announced"]["problems"]
                self.assertEqual(own._record["status"], "halted")
                self.assertTrue(any(words in each for each in problems) if words else not problems, problems)
        os.rename(os.path.join(self.place, "sidle/reports"), os.path.join(self.place, "elsewhere"))
        os.symlink(os.path.join(self.place, "elsewhere"), os.path.join(self.place, "sidle/reports"))
        self.records.remove("r1")
        with self.assertLogs(announcing.log, "ERROR"):
            own = self.halted()
        self.assertEqual(own._record["status"], "halted")
        self.assertIn("it is a link, or no directory", " ".join(self.records.read("r1")["announced"]["problems"]))

    def test_a_runner_that_is_killed_before_its_word_leaves_the_word_to_the_next_one(self):
        record = self.record(hosts(a={}))
        record.update(status=states.HALTED, why="wave 1: 1 of 1 hosts went wrong")
        self.assertTrue(states.is_untold(record))
        self.announcer().announce(record)
        self.assertFalse(states.is_untold(record))
        del record["announced"]
        self.assertFalse(states.is_untold(record), "of an earlier version")

    def test_the_schedule_tells_what_a_killed_runner_has_not_told(self):
        fired, buses, self.missed = [], [], {}

        class Sender(Bus):
            def __enter__(self):
                buses.append(self)
                return self

            def __exit__(self, *_):
                pass

            def fire(self, tag, _data):
                fired.append(tag)

        opts = {"cachedir": self.place, "sock_dir": os.path.join(self.place, "run")}
        with mock.patch.object(rollouts, "Bus", lambda *_: Sender()):
            own = rollouts.Rollouts(opts, "root")
            record = self.record(hosts(a={}, b={}))
            own.records.write({**record, "status": states.HALTED, "why": "wave 1: 1 of 1 hosts went wrong"})
            own.records.write({**record, "id": "r2", "status": states.ABORTED})
            told = own.continue_all(rollouts.has_work, "go_on")
            self.assertEqual((sorted(told), fired), (["r1", "r2"], ["salt/sidle/rollout/r1/halted", "salt/sidle/rollout/r2/aborted"]))
            self.assertEqual([bus.of("sidle.unclaim") for bus in buses], [[], [["a", "b"]]], "what is over claims nobody; a halted one goes on")
            self.assertEqual((own.continue_all(rollouts.has_work, "go_on"), len(fired)), ({}, 2), "once")
            self.assertEqual(len(own.records.read("r1")["acts"]), 1, "nothing was ordered")

    def test_the_file_says_of_each_host_what_happened(self):
        facts = hosts(a={}, b={}, c={"status": None}, d={"status": status(NEW)}, e={"unseen_days": 100})
        own = self.driver(self.record(facts, budget=2, family_budget=2), self.announcer())
        self.step(own)
        first = next(iter(own._own.in_flight))
        other = {"a": "b", "b": "a"}[first]
        own._own.on_status(self.now, first, status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None, "downtime": DOWN}))
        self.step(own, 700)
        own._own.on_switch(self.now, other, {"error": {"class": "held", "message": EVIL}})
        self.step(own, 700)
        own.end()
        self.missed = {first: 3}
        own.end()
        told = json.loads(self.read("json"))
        self.assertEqual((told["schema"], told["status"], told["ordered_by"], told["master"]), (1, "ended", "sudo_ann", "m1"))
        good, bad = told["hosts"][first], told["hosts"][other]
        self.assertEqual(
            (good["from"], good["to"], good["state"], good["downtime_seconds"], good["jobs_missed"]), (OLD, NEW, "done", 30.5, 3)
        )  # fmt: skip
        self.assertEqual((bad["state"], bad["kind"], bad["why"], bad["downtime_seconds"]), ("refused", "held", EVIL, None))
        self.assertEqual({each: host["verdict"] for each, host in told["not_going"].items()}, {"c": "refused", "e": "gone"})
        page = self.read("html")
        self.assertNotIn(EVIL, page)
        self.assertNotIn("\x1b", page)
        self.assertIn("&lt;script&gt;alert(1)", page)
        for words in ("30.5 s", "Not ordered", "it has no salt-minion under sidle", "Ordered by sudo_ann", f"<td>{OLD}</td><td>{NEW}</td>"):
            self.assertIn(words, page)
        self.assertEqual(self.fired[-1][0], "salt/sidle/rollout/r1/ended")
        self.assertTrue(self.fired[-1][1]["page"].endswith("sidle/reports/r1.html"))

    def test_what_was_refused_or_failed_before_a_person_tried_again_stays_in_the_file(self):
        own = self.halted()
        first = next(each for each, host in own._record["hosts"].items() if host["state"] == "failed")
        own._own.resume(again=True)
        self.step(own)
        own._own.on_status(self.now, first, status(NEW, last={"id": 2, "to": NEW, "result": "committed", "failure": None}))
        self.step(own)
        own._announcer.write(own._record)
        host = json.loads(self.read("json"))["hosts"][first]
        self.assertEqual((host["state"], host["kind"], host["why"], host["downtime_seconds"]), ("done", None, None, 0))
        self.assertEqual([(each["state"], each["kind"], each["why"]) for each in host["earlier"]], [("failed", "release", EVIL)])
        self.assertIn("before: failed: &lt;script&gt;", self.read("html"))

    def test_acts_keep_the_first_and_the_newest(self):
        record = {}
        for number in range(acts.ACTS_MAX + 50):
            acts.note(record, number, "go_on", "root\n", None)
        self.assertEqual(len(record["acts"]), acts.ACTS_MAX)
        self.assertEqual((record["acts"][0]["at"], record["acts"][-1]["at"], record["acts"][0]["by"]), (0, acts.ACTS_MAX + 49, "root"))

    def test_a_record_of_an_earlier_version_has_its_report(self):
        record = self.record(hosts(a={}))
        for key in ("acts", "announced", "stay"):
            del record[key]
        made = report.made(record, "m1", self.now)
        self.assertIn("Ordered by unknown", report_page.render(made))
        self.assertEqual((made["acts"], made["not_going"]), ([], {}))

    def test_a_master_that_is_away_hears_no_event_and_the_rollout_goes_on(self):
        def away(_tag, _data):
            raise jobs.Away("the master takes no jobs")

        record = self.record(hosts(a={}))
        with self.assertLogs(announcing.log, "ERROR"):
            announcing.Announcer({"cachedir": self.place}, away, lambda: self.now).announce(record)
        self.assertEqual(record["announced"], {"status": "running", "problems": ["cannot fire an event: the master takes no jobs"]})


if __name__ == "__main__":
    unittest.main()
