"""Who did not return a job: evidence in, groups out; and who runs it again. Run by `scripts/lint`; needs no Salt."""

import dataclasses
import json
import os
import shutil
import tempfile
import time
import types
import unittest

import bare_salt
import test_why
from test_why import JID, NOW, THEN, answering, job, silent, switch

with bare_salt.importable():
    from saltext.sidle.fleet import again, missed, missing

#: Published for ten thousand minions; for which, is not on record.
JOB = job(expected=None, returned=[])


def several(names, known):
    """Gives the same evidence of several minions."""
    return [dataclasses.replace(known, minion=name, job=JOB) for name in names]


def report(*groups, unasked=0):
    minions = [each for group in groups for each in group]
    return missing.report(types.SimpleNamespace(jid=JID, job=JOB, expected=10_000, minions=minions, unasked=unasked))


OLD = answering(match_error="TypeError: unexpected (", matches=None, version="2015.5.11")
MISSED = answering({"claimed": False, "switches": [switch()]})
#: The minion was started later, and nothing tells whether it had received the job.
UNSURE = answering({"started": THEN + 60})


class Groups(unittest.TestCase):
    def test_each_silent_minion_is_in_the_group_of_its_cause_and_the_largest_comes_first(self):
        found = report(
            several([f"web{number}" for number in range(12)], silent()), several([f"new{number}" for number in range(9)], test_why.found(keys=frozenset({"pending"}))),
            several([f"old{number}" for number in range(6)], OLD), several(["db1", "db2", "db3"], MISSED),
            several(["slow1"], answering(running={"pid": 4711})),
        )  # fmt: skip
        told = [(len(group.minions), group.cause, group.words) for group in found.groups]
        self.assertEqual(told, [
            (12, "offline", "offline since before the job"), (9, "key-pending", "key waits to be accepted"),
            (6, "target-not-understood", "cannot evaluate the target (Salt 2015.5.11)"), (3, "missed-in-switch", "missed it in the downtime of a switch"),
            (1, "running", "still run it"),
        ])  # fmt: skip
        text = missing.render(found)
        self.assertIn("31 of 10,000 minions have not returned it.", text)
        self.assertIn("    salt -L db1,db2,db3 …", text)
        self.assertIn("slow1 still runs the job, in process 4711", text)
        self.assertTrue(text.endswith("3 of them answer, and surely did not begin the job: db1,db2,db3"), "what cannot be run again is not offered")
        found.job, found.digest = 'cmd.run "apt update"', "sha256-1"
        self.assertIn(f'db1,db2,db3\n    cmd.run "apt update"\n    `salt-run sidle.missing {JID} run_again=sha256-1`', missing.render(found))
        json.dumps(missing.written(found), allow_nan=False)

    def test_no_id_is_a_command_where_it_is_pasted(self):
        told = missing.render(report(several(["web1$(reboot)", "a\nNote: b"], silent())))
        self.assertIn("    salt -L 'web1$(reboot),a Note: b' …", told)

    def test_who_went_offline_later_has_a_group_of_its_own(self):
        found = report(several(["a"], silent(seen=THEN - 60)), several(["b"], silent(seen=THEN + 60)))
        self.assertEqual({group.words for group in found.groups}, {"offline since before the job", "offline, and seen after the job"})

    def test_only_who_answers_and_surely_did_not_begin_it_can_run_it_again(self):
        begun = [
            known for name, cases in test_why.CASES.items() for known, _ in cases
            if known.answers is not True or known.received is not False or name in ("target-does-not-match", "nothing-missing")
        ]  # fmt: skip
        self.assertGreater(len(begun), 30)
        self.assertEqual(report(several(["a"], UNSURE), *(several(["b"], known) for known in begun if known.job)).can_run_again, [])
        sure = [answering({"claimed": False}), answering({"claimed": False, "started": THEN + 60}), MISSED]
        self.assertEqual(report(*(several([f"c{number}"], known) for number, known in enumerate(sure))).can_run_again, ["c0", "c1", "c2"])

    def test_a_clock_that_differs_leaves_it_open_whether_a_job_was_begun(self):
        # Of a host that is half an hour behind, claims are removed while it takes them for kept.
        for seconds, surely_not in ((-1800, []), (1800, []), (-4, ["a"])):
            known = answering({"claimed": False, "now": test_why.NOW + seconds})
            self.assertEqual(report(several(["a"], known)).can_run_again, surely_not, seconds)

    def test_the_remedy_of_several_names_none_of_them(self):
        several_ = report(several(["web1", "web12"], test_why.found(keys=frozenset({"pending"})))).groups[0]
        self.assertIn("`salt-key -a ID`", several_.remedy[0])
        one = report(several(["web1"], test_why.found(keys=frozenset({"pending"})))).groups[0]
        self.assertIn("`salt-key -a web1`", one.remedy[0])

    def test_the_text_has_the_beginning_of_a_long_list_and_the_data_all_of_it(self):
        found = report(several([f"web{number}" for number in range(9_000)], silent()), unasked=8_000)
        text = missing.render(found)
        self.assertLess(len(text), 3_000)
        self.assertRegex(text, r"web0,web1,.*… [\d,]+ more \(format=data has all\)")
        self.assertIn("8000 minions were not asked", text)
        self.assertEqual(len(missing.written(found)["groups"][0]["minions"]), 9_000)

    def test_each_cause_has_words_for_a_group(self):
        words = [cause.group for cause in missing.CAUSES]
        self.assertEqual(len(set(words)), len(words))
        self.assertTrue(all(words))


class Again(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        self.published = []
        self.again = again.Again({"cachedir": self.place})
        self.again._job = lambda jid: {"fun": "test.ping", "arg": []}
        self.again._publish = self.publish

    def run_again(self, ids, jid=JID):
        return self.again.run(jid, ids, self.again.wanted(jid).digest)

    def publish(self, _job, jid, ids):
        self.published.append((jid, ids))
        return {"jid": str(NOW), "minions": ids}

    def test_each_minion_is_asked_once(self):
        self.assertEqual(self.run_again(["a", "b"], JID), (str(NOW), ["a", "b"]))
        self.assertEqual(self.run_again(["b", "c"], JID), (str(NOW), ["c"]))
        self.assertIsNone(self.run_again(["a", "b", "c"], JID))
        self.assertEqual(self.published, [(JID, ["a", "b"]), (JID, ["c"])])

    def test_only_what_a_person_has_seen_is_run(self):
        """Any accepted minion can store another job under an id, as a syndic does: it ran on those that had missed the first one."""
        seen = self.again.wanted(JID)
        self.assertEqual(seen.text, "test.ping")
        for forged in ({"fun": "test.ping", "arg": ["x"]}, {"fun": "cmd.run", "arg": []}, {"fun": "test.ping", "arg": [], "ret": "smtp"}, {"fun": "test.ping", "arg": [b"x"]}):
            self.again._job = lambda jid, forged=forged: forged
            with self.subTest(forged), self.assertRaisesRegex(missing.MissingError, "not the job that was looked at"):
                self.again.run(JID, ["a"], seen.digest)
        self.assertEqual((self.published, self.again.asked(JID)), ([], []))

    def test_what_would_be_run_is_shown_whole_and_on_one_line(self):
        self.again._job = lambda jid: {"fun": "cmd.run", "arg": ["true\n\u202e", "b", 5, {"__kwarg__": True, "cwd": "/"}], "ret": "smtp"}
        told = 'cmd.run "true\\n\\u202e" b 5 {"__kwarg__": true, "cwd": "/"} (returns go to "smtp", too)'
        self.assertEqual(self.again.wanted(JID).text, told)
        self.again._job = lambda jid: {"fun": "cmd.run", "arg": ["x" * 5_000]}
        with self.assertRaisesRegex(missing.MissingError, "too long to be shown"):
            self.again.wanted(JID)

    def test_who_was_to_be_asked_when_the_runner_died_is_not_asked_by_the_next_one(self):
        def dies(*_):
            raise KeyboardInterrupt

        self.again._publish = dies
        with self.assertRaises(KeyboardInterrupt):
            self.run_again(["a"], JID)
        self.again._publish = self.publish
        self.assertIsNone(self.run_again(["a"], JID))

    def test_a_record_that_is_damaged_asks_nobody(self):
        self.run_again(["a"], JID)
        with open(os.path.join(self.place, "sidle", "again", JID), "w", encoding="ascii") as file:
            file.write("[")
        with self.assertRaisesRegex(missing.MissingError, "is damaged"):
            self.run_again(["a"], JID)
        self.assertEqual(len(self.published), 1)

    def test_no_name_of_a_job_leads_elsewhere(self):
        for wrong in ("../x", "/etc/passwd", "", "a\nb"):
            with self.subTest(wrong), self.assertRaises(again.names.WrongName):
                self.run_again(["a"], wrong)


class Missed(unittest.TestCase):
    def setUp(self):
        self.report = missed.Report("web17", THEN, [
            missed.Missed("20260921141320000000", "state.apply", THEN, "missed-in-switch", "missed it in the downtime of a switch", True),
            missed.Missed("20260921141321000000", "test.ping", THEN + 1, "restarted", "started after it was published", False),
            missed.Missed("20260921141322000000", "test.ping", THEN + 2, "missed-in-switch", "missed it in the downtime of a switch", True),
        ])  # fmt: skip

    def describe(self):
        for number, each in enumerate(self.report.jobs):
            if each.can_run_again:
                each.job, each.digest = f"fun.{number} x", f"sha256-{number}"

    def test_each_job_has_a_line_and_states_are_named_as_such(self):
        self.assertNotIn("run=", missed.render(self.report), "what cannot be shown is not offered")
        self.describe()
        text = missed.render(self.report)
        self.assertIn("3 jobs of the last", text)
        self.assertIn("state.apply (a state: it changes the host): missed it in the downtime of a switch  [missed-in-switch]", text)
        self.assertIn("  20260921141320000000  fun.0 x\n", text)
        self.assertIn("run='[20260921141320000000/sha256-0, 20260921141322000000/sha256-2]'", text)
        self.assertIn("has returned each job", missed.render(missed.Report("web17", THEN, [])))

    def test_only_what_surely_did_not_begin_can_be_chosen(self):
        oldest, newest = (f"{job.jid}/sha256-{number}" for number, job in enumerate(self.report.jobs) if job.can_run_again)
        # The oldest one first, however they are named.
        self.assertEqual([job.choice for job in missed.chosen(self.report, [newest, oldest])], [oldest, newest])
        self.assertEqual([job.choice for job in missed.chosen(self.report, newest)], [newest])
        for wrong in ("20260921141321000000/x", [oldest, "20260921141321000000/x"], "non/sense", True, "20260921141320000000", 20260921141322000000):
            with self.subTest(wrong), self.assertRaisesRegex(missing.MissingError, "nothing was run"):
                missed.chosen(self.report, wrong)

    def test_what_was_run_again_is_named_and_not_offered_once_more(self):
        self.report.jobs[0].again = True
        self.describe()
        text = missed.render(self.report)
        self.assertIn("[missed-in-switch]; was run again", text)
        self.assertIn("run='[20260921141322000000/sha256-2]'", text)

    def test_a_time_of_the_host_is_as_good_as_a_span(self):
        at = 1_790_000_000
        told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        self.assertEqual([missed.seconds_of(text, at + 90) for text in (told, told.rstrip("Z"), told.replace("T", " "))], [90, 90, 90])
        for wrong, why in (("2026-13-01T00:00:00Z", "no such time"), (told, "to come"), ("2020-01-01T00:00:00Z", "longer ago")):
            with self.subTest(wrong), self.assertRaisesRegex(missing.MissingError, why):
                missed.seconds_of(wrong, at - 1)

    def test_times(self):
        self.assertEqual([missed.seconds_of(text) for text in ("30m", "24h", "7d", "90", 90)], [1800, 86400, 604800, 90, 90])
        for wrong in ("", "h", "0h", "-1h", "1w", "1.5h", "400d", "٣h"):
            with self.subTest(wrong), self.assertRaisesRegex(missing.MissingError, "30m, 24h or 7d"):
                missed.seconds_of(wrong)


if __name__ == "__main__":
    unittest.main()
