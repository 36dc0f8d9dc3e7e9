"""What a minion uses is counted once, in every process, and bounded: python3 -m unittest discover -s bundles/salt-minion/guard"""

import asyncio
import json
import logging
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import slot, tally, uses  # noqa: E402

FORK = multiprocessing.get_context("fork")
DAY = 20_000


class LoadedFunc:
    """As Salt's: the name and the loader stand on each one, the function in the loader."""

    def __init__(self, name, loader):
        self.name, self.loader = name, loader

    @property
    def func(self):
        return self.loader.functions[self.name]

    def __call__(self, *arguments):
        return self.func(*arguments)


class LoadedCoro(LoadedFunc):
    """The one of 3008 for coroutines."""

    async def __call__(self, *arguments):
        return await self.func(*arguments)


class Loader:
    """A loader of one kind."""

    def __init__(self, tag, place="salt.loaded.int.x"):
        self.tag, self.place, self.functions = tag, place, {}

    def call(self, name, *arguments):
        def function(*_):
            return name

        function.__module__ = self.place
        self.functions.setdefault(name, function)
        return LoadedFunc(name, self)(*arguments)


class UsesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "slots"))
        self.file = os.path.join(self.folder, uses.FILE_NAME)
        lazy = types.ModuleType("salt.loader.lazy")
        lazy.LoadedFunc, lazy.LoadedCoro = LoadedFunc, LoadedCoro
        loader = types.ModuleType("salt.loader")
        loader.lazy = lazy
        modules = {"salt": types.ModuleType("salt"), "salt.loader": loader, "salt.loader.lazy": lazy}
        patched = unittest.mock.patch.dict(sys.modules, modules)
        patched.start()
        self.addCleanup(patched.stop)
        self.day = DAY
        for module in (uses, tally):
            day = unittest.mock.patch.object(module, "today", lambda: self.day)
            day.start()
            self.addCleanup(day.stop)

    def begun(self, begin=True):
        counting = uses.Uses(slot.Slot(self.folder, 1, "active"), self.file)
        if begin:
            self.assertIsNone(counting.begin())
            self.addCleanup(counting.end)
        return counting

    def look(self, counting, folds=True):
        counting.looked, counting.written = 0.0, counting.written and -1e9
        counting.look(folds)

    def saved(self):
        with open(self.file, encoding="utf-8") as file:
            return json.load(file)

    def test_every_process_counts_its_own_calls_and_none_those_of_another(self):
        counting = self.begun()
        module = Loader("module")
        module.call("test.ping", "an argument")

        def job():
            module.call("test.ping", "secret")
            module.call("cmd.run")

        jobs = [FORK.Process(target=job) for _ in range(3)]
        for process in jobs:
            process.start()
        for process in jobs:
            process.join()
        pid = os.fork()
        if pid == 0:
            # Not multiprocessing's: nothing of main's may be counted twice.
            counting.counter.append = counting.log.append
            counting.counter.pass_on()
            os._exit(0)
        os.waitpid(pid, 0)
        self.look(counting)
        self.look(counting)
        found = self.saved()
        self.assertEqual(found["uses"], {"module": {"cmd.run": [[DAY, 3]], "test.ping": [[DAY, 4]]}})
        self.assertEqual((found["days"], found["cut"]), ([DAY], None))
        self.assertNotIn("secret", pathlib.Path(self.file).read_text())
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(os.path.join(self.folder, "slots")), [])

    def test_a_job_that_fails_or_exits_is_counted_and_an_engine_that_never_ends_at_once(self):
        counting = self.begun()

        def job(end):
            Loader("states").call("file.managed")
            end()

        def fail():
            raise SystemExit(3)

        process = FORK.Process(target=job, args=(fail,))
        process.start()
        process.join()
        self.assertEqual(process.exitcode, 3)

        def engine(ready):
            Loader("engines").call("reactor.start")
            ready.set()
            while True:
                asyncio.run(asyncio.sleep(60))

        ready = FORK.Event()
        endless = FORK.Process(target=engine, args=(ready,))
        endless.start()
        self.assertTrue(ready.wait(20))
        self.look(counting)
        self.look(counting)
        endless.kill()
        endless.join()
        self.assertEqual(self.saved()["uses"], {"engines": {"reactor.start": [[DAY, 1]]}, "states": {"file.managed": [[DAY, 1]]}})

    def test_coroutines_count_and_kinds_have_one_name(self):
        counting = self.begun()
        loader = Loader("rawmodule")
        loader.functions["pkg.install"] = unittest.mock.AsyncMock(return_value="done")
        self.assertEqual(asyncio.run(LoadedCoro("pkg.install", loader)()), "done")
        Loader("top").call("reclass.top")
        Loader("module").call("pkg.install")
        self.look(counting)
        self.assertEqual(self.saved()["uses"], {"module": {"pkg.install": [[DAY, 2]]}, "tops": {"reclass.top": [[DAY, 1]]}})

    def test_what_salts_own_modules_call_is_of_another_kind_and_what_the_minion_itself_calls_is_none(self):
        counting = self.begun()
        module = Loader("module")
        module.call("test.ping")
        callers = {
            "salt.loaded.int.states.pkg": "pkg.install", "salt.loaded.int.module.mine": "ours.go", "salt.loaded.ext.module.ours": "cmd.run",
            "salt.utils.schedule": "timezone.get_offset", "salt.state": "x.unless", "salt.loaded.int.executor.direct_call": "test.ping",
        }  # fmt: skip
        for caller, name in callers.items():
            module.functions[name] = lambda: None
            exec("function()", {"__name__": caller, "function": LoadedFunc(name, module)})
        self.look(counting)
        self.assertEqual(self.saved()["uses"], {
            "module": {"cmd.run": [[DAY, 1]], "ours.go": [[DAY, 1]], "test.ping": [[DAY, 2]], "x.unless": [[DAY, 1]]},
            "module-by-salt": {"pkg.install": [[DAY, 1]]},
        })  # fmt: skip

    def test_of_what_is_always_called_only_the_hosts_own_counts_and_no_name_that_a_terminal_would_obey(self):
        counting = self.begun()
        for tag in uses.OWN_ONLY:
            Loader(tag).call("core.os_data")
            Loader(tag, "salt.loaded.ext.x.ours").call("ours.facts")
        for name in ("a.\x1b[2J", "../x.y", "x" * (uses.LONGEST_NAME + 1), "", "a b.c"):
            Loader("module").call(name)
        self.look(counting)
        self.assertEqual(self.saved()["uses"], {tag: {"ours.facts": [[DAY, 1]]} for tag in uses.OWN_ONLY})

    def test_beside_another_process_one_keeps_the_file_and_nothing_is_lost_when_they_change_places(self):
        old, module = self.begun(), Loader("module")
        module.call("test.ping")
        self.look(old)
        # Numbers alone wait for ten minutes.
        module.call("test.ping")
        old.looked = 0.0
        old.look(True)
        self.assertEqual(self.saved()["uses"]["module"]["test.ping"], [[DAY, 1]])
        new = self.begun(begin=False)
        new.counter.fresh[("render", "jinja.render")] = 5
        self.look(new, folds=False)
        self.look(old, folds=False)
        for _ in range(2):
            self.look(new)
        self.assertEqual(self.saved()["uses"], {"module": {"test.ping": [[DAY, 2]]}, "render": {"jinja.render": [[DAY, 5]]}})
        old.close(False)
        new.close(True)
        self.assertEqual(self.saved()["uses"]["module"]["test.ping"], [[DAY, 2]])

    def test_the_count_is_bounded_by_days_and_names_and_the_oldest_day_goes_first(self):
        count = tally.Count()
        for day in range(DAY - 120, DAY + 1):
            count.days.add(day)
            for number in range(100):
                count.add(day, "module", f"m.f{number}", 2)
        count.bound()
        self.assertEqual((len(count.days), min(count.days)), (tally.DAYS, DAY - tally.DAYS + 1))
        for number in range(tally.MOST_PAIRS - 100 * 10):
            count.add(DAY, "module", f"many.f{number:05}", 1)
        count.bound()
        self.assertEqual((min(count.days), count.cut), (DAY - 9, None))
        for number in range(10):
            count.add(DAY + 1, "module", f"more.f{number}", 1)
        for number in range(tally.MOST_PAIRS):
            count.add(DAY + 1, "states", f"s.f{number}", 1)
        count.days.add(DAY + 1)
        count.bound()
        self.assertEqual((count.days, count.cut), ({DAY + 1}, DAY + 1), "what is not in it may have been called")
        self.assertLess(len(count.text()), 1 << 20)

    def test_a_clock_that_is_wrong_for_once_does_not_empty_the_count(self):
        for wrong in (3, DAY + 400):
            count = tally.Count()
            for day in (*range(DAY - 79, DAY + 1), wrong):
                count.days.add(day)
                count.add(day, "module", "test.ping", 1)
            count.bound()
            self.assertEqual(len(count.uses["module"]["test.ping"]), 81, wrong)

    def test_a_removed_file_is_written_again_and_one_that_cannot_be_read_begins_anew_and_says_so(self):
        counting = self.begun()
        Loader("module").call("test.ping")
        self.look(counting)
        os.unlink(self.file)
        self.look(counting)
        self.assertEqual(self.saved()["uses"], {"module": {"test.ping": [[DAY, 1]]}})
        for broken in ("{", '{"schema": 2}', "[]", '{"schema": 1, "days": [], "uses": {"module": 3}}'):
            pathlib.Path(self.file).write_text(broken)
            later = self.begun(begin=False)
            with self.assertLogs(uses.log, logging.ERROR):
                self.look(later)
            self.assertEqual(self.saved()["uses"], {})

    def test_a_log_that_nobody_folds_does_not_grow_for_ever_and_a_line_that_was_cut_off_is_none(self):
        written = tally.UsesLog(os.path.join(self.folder, "slots", "log"))
        with unittest.mock.patch.object(tally, "MOST_LOG_BYTES", 100):
            for _ in range(100):
                written.append({("module", "test.ping"): 1})
        self.assertLess(os.stat(written.path).st_size, 200)
        with open(written.path, "a", encoding="utf-8") as file:
            file.write('[20000,[["module","te')
        self.assertEqual(written.taken(), [])
        self.assertEqual(set(written.taken()), {(DAY, "module", "test.ping", 1)})
        self.assertEqual(written.taken(), [])

    def test_off_by_the_setting_nothing_is_wrapped_and_jobs_do_not_inherit_the_word(self):
        environment = {uses.VARIABLE: "off"}
        self.assertFalse(uses.Uses.wanted(environment))
        self.assertTrue(uses.Uses.wanted({}))
        self.assertEqual(environment, {})
        original = LoadedFunc.__call__
        counting = uses.Uses(slot.Slot(self.folder, 1, "active"), None)
        self.assertIn("count_uses", counting.begin())
        self.assertIs(LoadedFunc.__call__, original)
        counting.look(True)
        counting.close(True)
        self.assertFalse(os.path.exists(self.file))


if __name__ == "__main__":
    unittest.main()
