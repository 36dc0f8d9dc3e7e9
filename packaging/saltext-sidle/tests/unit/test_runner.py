"""The runner as the deputy of who may call it: names are checked first, and files lie in one directory. Run by `scripts/lint`; needs no Salt."""

import json
import os
import shutil
import tempfile
import threading
import unittest
from unittest import mock

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import asking, beginning, files, names, page, rollouts
    from saltext.sidle.fleet import plan as planning
    from saltext.sidle.runners import sidle as runner

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJ7Q x"


class Names(unittest.TestCase):
    def test_releases_are_those_of_sidle(self):
        for good in ("3007.17-1", "3006.0rc10-2", "1-1", "1.2.3-4294967295", "3006.0~rc1-1", "2026.11.25-3", "1.0-beta-2"):
            self.assertTrue(names.is_release(good), good)
        bad = (
            "", "3007.17", "3007.17-0", "3007.17-01", "3007.17-+1", "-1", "v1-1", "1.2.3.4-1", "01.2-1", "1..2-1", "1.-1", "1.0 x-1", "1.0/..-1",
            "1.0\n-1", KEY, "1.0rc..1-1", "1.0rc01-1", "9" * 49 + "-1", "1.0-4294967296", "99999999999999999999-1", "1.0+x-1", "٣-1", None, 1.0, b"1-1",
        )  # fmt: skip
        for each in bad:
            self.assertFalse(names.is_release(each), each)

    def test_packages_rollouts_and_ids_are_those_of_sidle_and_of_salt(self):
        cases = [
            (names.is_package, ["salt-minion", "a", "0.x_+-"], ["", "A", "-a", "trust", "a/b", "a b", "a\n", "a" * 65, "ssh-ed25519 x", None]),
            (names.is_rollout, ["r1", "A_b.c-9"], ["", "-r", "../r", "a/b", "a b", "r\n", "r" * 129, 5]),
            (names.is_minion, ["web17", "web1.example", "a b"], ["", ".", "..", ".x", "../a", "a/b", "a\\b", "a\x00", "a\n", "m" * 256, 5]),
        ]
        for check, good, bad in cases:
            self.assertEqual([each for each in good if not check(each)], [])
            self.assertEqual([each for each in bad if check(each)], [])


class Files(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        self.directory = os.path.join(self.place, "files")
        self.files = files.Files(self.directory)

    def test_a_file_is_whole_and_is_found_by_its_name_and_by_its_path(self):
        path = self.files.write("a.json", "old")
        self.assertEqual(self.files.write(path, "new"), path)
        self.assertEqual((self.files.read("a.json"), self.files.read(path)), ("new", "new"))
        self.assertEqual((os.listdir(self.directory), os.stat(self.directory).st_mode & 0o777), (["a.json"], 0o700))

    def test_no_name_leads_elsewhere(self):
        outside = os.path.join(self.place, "authorized_keys")
        for wrong in (outside, "../authorized_keys", "a/b", "/a", ".a", "", "a\n", "a" * 200, f"{self.directory}/../a", f"{self.directory}/a/b", 5 * "../"):
            for act in (lambda wrong=wrong: self.files.write(wrong, "x"), lambda wrong=wrong: self.files.read(wrong)):
                with self.subTest(wrong), self.assertRaises(files.FileError):
                    act()
        self.assertFalse(os.path.exists(outside))

    def test_no_link_is_followed(self):
        outside = os.path.join(self.place, "authorized_keys")
        with open(outside, "w", encoding="utf-8") as file:
            file.write("mine")
        os.mkdir(self.directory, 0o700)
        os.symlink(outside, os.path.join(self.directory, "a.json"))
        with self.assertRaisesRegex(files.FileError, "it is a link"):
            self.files.read("a.json")
        self.files.write("a.json", "x")
        os.mkfifo(os.path.join(self.directory, "b.json"))
        with self.assertRaisesRegex(files.FileError, "it is no file"):
            self.files.read("b.json")
        with open(outside, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")
        os.rename(self.directory, os.path.join(self.place, "other"))
        os.symlink(os.path.join(self.place, "other"), self.directory)
        for act in (lambda: self.files.write("c", "x"), lambda: self.files.read("a.json")):
            with self.assertRaisesRegex(files.FileError, "it is a link, or no directory"):
                act()
        os.unlink(self.directory)
        os.mkdir(self.directory)
        os.chmod(self.directory, 0o777)
        with self.assertRaisesRegex(files.FileError, "another user may write there"):
            self.files.write("c", "x")


class Runners(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        runner.__opts__ = {"cachedir": os.path.join(self.place, "cache"), "sock_dir": os.path.join(self.place, "run")}
        runner.__context__ = {}
        resolved = mock.patch.object(asking, "resolve", lambda *_: (["web1"], []))
        asked = mock.patch.object(rollouts.Rollouts, "ask", lambda _, *given, **more: self.ask(*given, **more))
        for each in (resolved, asked):
            each.start()
            self.addCleanup(each.stop)
        self.asked = []

    def ask(self, ids, function, *_, **__):
        self.asked.append(function)
        return {}

    def written(self):
        return sorted(os.path.join(where, name) for where, _, found in os.walk(self.place) for name in found)

    def test_a_plan_is_written_below_one_directory_and_read_from_there(self):
        outside = os.path.join(self.place, "authorized_keys")
        said = runner.plan("*", "3007.17-1", format="data", file=outside)
        self.assertIn("cannot use the file", said["error"])
        self.assertEqual((self.written(), self.asked), ([], []), "nothing was asked")
        said = runner.plan("*", "3007.17-1", format="data", file="a.json")
        path = os.path.join(self.place, "cache/sidle/files/a.json")
        self.assertTrue(said.endswith(f"; written to {path}"), said)
        self.assertEqual(self.written(), [path])
        self.assertEqual(json.loads(runner._rollouts().files.read(path))["release"], "3007.17-1")
        self.assertIn("cannot use the file", runner.rollout(plan=outside)["error"])
        runner.__opts__["sidle"] = {"files": os.path.join(self.place, "site")}
        runner.plan("*", "3007.17-1", format="html", file="a.html")
        self.assertTrue(os.path.exists(os.path.join(self.place, "site/a.html")))

    def test_a_master_of_masters_says_where_the_minions_of_a_syndic_are_rolled_out(self):
        runner.__opts__.update(order_masters=True)
        with mock.patch.object(asking, "resolve", lambda *_: ([], [])):
            self.assertIn("It is a master of masters", runner.plan("web*", "3007.17-1")["error"])
        os.makedirs(os.path.join(self.place, "cache/syndics/web1"))
        said = runner.rollout("web*", "3007.17-1", name="r1")["error"]
        self.assertTrue(said.endswith("Run this on the syndic's own master (known here: web1)"), said)
        self.assertEqual(self.written(), [], "a syndic is waited for once, and nothing is left")
        said = runner.rollout("web*", "3007.17-1", name="r1", test=True)["error"]
        runner.__opts__.update(order_masters=False)
        self.assertIn("1 offline", runner.rollout("web*", "3007.17-1", name="r1", test=True), "a minion that is silent")

    def test_names_are_checked_before_anything_happens(self):
        calls = [
            lambda: runner.plan("*", f"{KEY}", package="ssh-ed25519", file="a"), lambda: runner.plan("*", "3007.17-1", package="ssh-ed25519 AAAA"),
            lambda: runner.plan("*", "3007.17-1", name="a\nb"), lambda: runner.plan("*", "3007.17-1", canary=["../a"]),
            lambda: runner.rollout("*", "3007.17"), lambda: runner.rollout("*", "3007.17-1", package="../x"), lambda: runner.rollout("*", "3007.17-1", name="../r"),
            lambda: runner.resume("../r"), lambda: runner.show("a/b"), lambda: runner.pause(5 * "../"), lambda: runner.rollback("r1", wave="x"),
            lambda: runner.take_up("../a"), lambda: runner.why("a/../b"), lambda: runner.why(".a"), lambda: runner.why(""),
        ]  # fmt: skip
        for number, call in enumerate(calls):
            with self.subTest(number):
                self.assertRegex(call()["error"], "^cannot ")
        self.assertEqual((self.written(), self.asked), ([], []))

    def test_a_rollout_whose_name_was_taken_while_it_was_planned_does_not_begin(self):
        driven = mock.patch.object(rollouts.driver, "drive", lambda *_, **__: self.fail("it is driven"))
        with driven, mock.patch.object(rollouts, "Bus", mock.MagicMock()):
            made = self.plan()
            name = runner._rollouts().free_name("r1", "salt-minion", "3007.17-1")
            before = self.begun(epoch=7)
            options = {"source": None, "install_rate": None, "splay": "60s", "at_window": None}
            with self.assertRaisesRegex(rollouts.RolloutError, "choose another name, or go on with `salt-run sidle.resume r1`"):
                runner._rollouts().begin(name, made, {}, options)
            self.assertEqual(runner._rollouts().records.read("r1"), before)

    def plan(self):
        host = {"family": "RedHat", "unseen_days": 0, "releases": [], "status": {
            "current": "3006.30-1", "installed": ["3007.17-1"], "supervisor": {"version": "1"}, "hold": None, "switch": None, "last": None, "instance": "salt-minion",
        }}  # fmt: skip
        return planning.make({"web1": host, "web2": host}, planning.Wanted("salt-minion", "3007.17-1"))

    def begun(self, **more):
        """A rollout on record, half way."""
        record = {**beginning.new("r1", self.plan(), 0.0), "splay": "60s", **more}
        runner._rollouts().records.write(record)
        return record

    def test_a_copy_of_a_record_is_left_to_the_master_whose_rollout_it_is(self):
        driven, bus = [], mock.MagicMock()
        with mock.patch.object(rollouts.driver, "drive", lambda record, *_, **__: driven.append(record["master"])), mock.patch.object(rollouts, "Bus", bus):
            runner.__opts__["id"] = "m2"
            self.begun(master="m1")
            self.assertEqual((runner.go_on(), driven), ({}, []))
            record = self.begun(master="m1", status="late", announced={"status": "running"})
            record["hosts"]["web1"]["state"] = "offline"
            runner._rollouts().records.write(record)
            self.assertEqual((runner.take_up("web1"), driven), ({}, []))
            # A person knows better; and a record of before has no master.
            for call in (lambda: runner.resume("r1"), lambda: self.begun() and runner.go_on(), lambda: self.begun(master="m2") and runner.go_on()):
                driven.clear()
                call()
                self.assertEqual(driven, ["m2"])

    def test_a_word_is_said_to_be_heard_by_a_driver_that_took_it_and_done_here_if_the_driver_ends_without(self):
        quick = mock.patch.multiple(rollouts, HEARD_SECONDS=0.3, HEARD_PAUSE_SECONDS=0.01)
        with mock.patch.object(rollouts, "Bus", mock.MagicMock()), quick:
            self.begun()
            own = runner._rollouts().records

            def hear():
                with own.commands("r1"):
                    pass

            with own.driving("r1"):
                threading.Timer(0.1, hear).start()
                self.assertEqual(runner.pause("r1", "lunch"), "the runner that drives rollout r1 has heard it")
                self.assertIn("has not heard it", runner.pause("r1", "tea"))
            # It was told as heard, and lost.
            driving = own.driving("r1")
            driving.__enter__()
            threading.Timer(0.1, driving.__exit__, (None, None, None)).start()
            self.assertEqual(runner.abort("r1", "a wrong release")["status"], "aborted")

    def test_a_way_back_goes_outside_of_windows_as_its_caller_or_its_rollout_says(self):
        driven = []
        with mock.patch.object(rollouts.driver, "drive", lambda record, *_, **__: driven.append(record) or record), mock.patch.object(rollouts, "Bus", mock.MagicMock()):
            cases = [({}, {}, (None, None)), ({}, {"outside_window": True}, (None, True)), ({"at_window": True}, {}, (True, None))]
            cases += [({"at_window": True}, {"outside_window": True}, (None, True)), ({"outside_window": True}, {}, (None, True))]
            for number, (former, given, found) in enumerate(cases, 1):
                # Each one ends the former, with a newer epoch.
                record = self.begun(epoch=10 * number, **former)
                record["hosts"]["web1"]["state"] = "done"
                runner._rollouts().records.write(record)
                runner.rollback("r1", **given)
                self.assertEqual((driven[-1]["at_window"], driven[-1]["outside_window"] or None), found, (former, given))

    def test_a_plan_asks_as_the_rollout_orders(self):
        given, found = {"at_window": True, "outside_window": True}, []
        for call in (lambda: runner.plan("*", "3007.17-1", **given), lambda: runner.rollout("*", "3007.17-1", **given)):
            self.assertIn("cannot use at_window and outside_window together", call()["error"])
        with mock.patch.object(asking, "planned", lambda own, *_: found.append(own.timing) or self.plan()):
            runner.rollout("*", "3007.17-1", outside_window=True, test=True)
            runner.plan("*", "3007.17-1", outside_window=True)
            runner.plan("*", "3007.17-1", at_window=True)
        outside, at = [[{"__kwarg__": True, name: True}] for name in ("outside_window", "at_window")]
        self.assertEqual(found, [outside, outside, at])

    def test_a_page_runs_its_own_script_alone(self):
        self.assertNotIn("nonce", page.POLICY)


if __name__ == "__main__":
    unittest.main()
