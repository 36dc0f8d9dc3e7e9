"""The records of rollouts and their jobs. Run by `scripts/lint`; needs no Salt."""

import os
import shutil
import tempfile
import unittest

from saltext.sidle.fleet import answers, jobs, records, states


def record(**more):
    host = {"wave": 0, "to": "2-1", "state": "waiting"}
    return {
        "id": "r1", "epoch": 1, "status": "running", "purpose": "switch", "package": "salt-minion", "release": "2-1", "splay": "1m",
        "settings": {"install_at_once": 20, "at_once": 50}, "hosts": {"h1": host, "h2": {**host, "wave": 1}, "h3": {**host, "wave": 4}}, **more,
    }  # fmt: skip


class Records(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        self.records = self.of("here")

    def of(self, own):
        return records.Records(os.path.join(self.place, "records"), os.path.join(self.place, own))

    def test_a_copy_that_deletes_takes_nothing_away_from_a_driver(self):
        with self.records.driving("r1"):
            self.records.write(record(epoch=3))
            shutil.rmtree(self.records.place)
            self.records.write(record(epoch=3))
            self.assertEqual(self.records.read("r1")["epoch"], 3)
            # An older copy, or half of one, is replaced.
            for text in ('{"id":"r1","epoch":2}', '{"id":"r', ""):
                with open(os.path.join(self.records.place, "r1.json"), "w", encoding="utf-8") as file:
                    file.write(text)
                self.records.write(record(epoch=3))
                self.assertEqual(self.records.read("r1"), record(epoch=3))
            with self.assertRaises(records.Driven), self.of("here").driving("r1"):
                pass
        self.assertEqual(os.listdir(self.records.place), ["r1.json"])

    def test_a_driver_ends_where_another_one_goes_on(self):
        self.records.write(record(epoch=3))
        self.of("elsewhere").write(record(epoch=4))
        with self.assertRaises(records.Superseded):
            self.records.write(record(epoch=3))
        self.assertEqual(self.records.read("r1")["epoch"], 4)

    def taken(self):
        with self.records.commands("r1") as commands:
            return [command[:3] for command in commands]

    def test_the_driver_hears_a_word_once(self):
        self.assertEqual(self.taken(), [])
        # One that came before the driver looked was lost with the next.
        self.records.ask_driver("r1", "abort", "a wrong release")
        self.records.ask_driver("r1", "pause", "lunch", "ann")
        self.assertEqual(self.taken(), [("abort", "a wrong release", None), ("pause", "lunch", "ann")])
        # Of the file system that was full, and of an earlier version.
        with open(os.path.join(self.records._own, "r1.words"), "a", encoding="utf-8") as file:
            file.write('["pause", "tea", "bob"]\n["abo')
        self.records.ask_driver("r1", "resume", "")
        self.assertEqual(self.taken(), [("pause", "tea", "bob"), ("resume", "", None)])
        self.assertEqual(self.taken(), [])

    def test_a_word_stays_until_its_record_is_written(self):
        self.records.ask_driver("r1", "abort", "a wrong release")
        with self.assertRaisesRegex(OSError, "no space"), self.records.commands("r1"):
            raise OSError("no space")
        self.assertEqual(self.taken(), [("abort", "a wrong release", None)])

    def test_names_lead_nowhere_else(self):
        for wrong in ("", "../r1", "a/b", ".r1", "Nov 2026", "r" * 129):
            with self.subTest(wrong), self.assertRaises(states.RolloutError):
                self.records.read(wrong)
        self.records.write(record())
        self.assertEqual(self.records.names(), ["r1"])


class Jobs(unittest.TestCase):
    def test_each_wave_has_its_source(self):
        def installs(**more):
            return [(job.kwarg, ids) for job, ids in jobs.of(record(**more), "install", ["h1", "h2", "h3"])]

        every = ["h1", "h2", "h3"]
        named = {"source": "salt-minion@2-1"}
        self.assertEqual(installs(), [(named, every)])
        self.assertEqual(installs(source="salt://s/m.sidle"), [({"source": "salt://s/m.sidle", "release": "2-1"}, every)])
        mixed = installs(source=["salt://s/repo", "https://m/repo"], install_rate=4_000_000)
        repositories = [{**named, "repository": "salt://s/repo", "rate": 200_000}, {**named, "repository": "https://m/repo"}]
        self.assertEqual(mixed, [(repositories[0], ["h1"]), (repositories[1], ["h2", "h3"])])

    def test_a_host_that_is_forced_has_an_order_of_its_own(self):
        of = record(purpose="rollback", at_window=True)
        of["hosts"]["h2"]["force"] = True
        (first, ids), (second, others) = jobs.of(of, "switch", ["h1", "h2", "h3"])
        self.assertEqual((first.function, ids, others), ("sidle.rollback", ["h1", "h3"], ["h2"]))
        self.assertEqual(second.kwarg, {**first.kwarg, "force": True})
        self.assertEqual((first.kwarg["rollout"], first.kwarg["epoch"], first.kwarg["at_window"]), ("r1", 1, True))

    def test_a_wave_that_waits_for_its_window_is_spread_over_the_time_that_it_takes(self):
        def splays(said="60s", at_once=2, **more):
            of = record(splay=said, **more)
            of["settings"]["at_once"] = at_once
            of["hosts"]["h1"]["wave"] = 0
            of["hosts"].update({f"h{number}": {**of["hosts"]["h2"], "wave": 1} for number in range(2, 7)})
            return {ids[0]: job.kwarg["splay"] for job, ids in jobs.of(of, "switch", ["h1", "h2"])}

        self.assertEqual(splays(at_window=True), {"h1": "60s", "h2": "270s"}, "five hosts, two at a time: three times 90 s")
        self.assertEqual(splays(at_window=True, at_once=5), {"h1": "60s"})
        self.assertEqual(splays(said="10m", at_window=True), {"h1": "10m"})
        self.assertEqual(splays(said="soon", at_window=True), {"h1": "soon"}, "the hosts refuse it")
        self.assertEqual(splays(), {"h1": "60s"}, "the driver itself gives no more orders")

    def test_a_way_back_needs_no_maintenance_window(self):
        back = record(id="r1-back", of="r1", purpose="rollback", outside_window=True)
        ((job, _),) = jobs.of(back, "switch", ["h1"])
        self.assertEqual((job.function, job.kwarg["outside_window"], "at_window" in job.kwarg), ("sidle.rollback", True, False))
        held = {"error": {"class": "held", "message": "it is outside its maintenance windows"}}
        self.assertEqual(jobs.explained(back, held), held)
        said = jobs.explained({**back, "outside_window": None}, held)["error"]
        self.assertEqual((said["class"], said["message"].count("`salt-run sidle.rollback r1 outside_window=True`")), ("held", 1), said)
        self.assertIn("outside_window=True", jobs.explained(record(), held)["error"]["message"])
        self.assertEqual(jobs.explained(record(), {}), {})

    def test_what_salt_itself_answers_is_a_failure(self):
        self.assertEqual(answers.order("'sidle' is not available.")["error"]["class"], "failed")
        self.assertEqual(answers.order({"code": 3})["error"]["class"], "nothing-to-do")
        self.assertEqual(answers.order({"code": 4, "switch": 1}), {})
        for taken in (True, False):
            told = {"code": 12, "error": {"class": "conflict" if taken else "failed", "message": "it belongs to rollout r2"}}
            self.assertEqual(jobs.is_taken(answers.order(told)), taken)


if __name__ == "__main__":
    unittest.main()
