"""Both kinds of Salt's coroutines have the same wrapper: what comes before them, and what after."""

import asyncio
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from sidle_guard.coroutines import DONE, SKIP, around


class Guard:
    """The main process, or a job's child."""

    def __init__(self):
        self.main = True

    def acts(self):
        return self.main


def by_future(steps, result):
    """As Salt 3006: a function that gives a future."""

    def original(self, word):
        steps.append(f"began {word}")
        future = asyncio.get_running_loop().create_future()

        def end():
            steps.append("ended")
            future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)

        asyncio.get_running_loop().call_later(0.001, end)
        return future

    return original


def by_coroutine(steps, result):
    """As Salt 3008."""

    async def original(self, word):
        steps.append(f"began {word}")
        await asyncio.sleep(0.001)
        steps.append("ended")
        if isinstance(result, Exception):
            raise result
        return result

    return original


class Around(unittest.TestCase):
    def setUp(self):
        self.guard, self.steps = Guard(), []

    def call(self, original, answer="answer"):
        """What the caller gets, after all that was to come has come."""

        async def call():
            def before(_, word):
                self.steps.append(f"before {word}")
                return answer

            wrapper = around(self.guard, original, before, lambda answer, result: self.steps.append((answer, result())))
            got = wrapper(None, "word")
            try:
                return got if got is DONE else await got
            finally:
                await asyncio.sleep(0)

        return asyncio.run(call())

    def test_after_comes_when_the_work_is_done(self):
        for kind in (by_future, by_coroutine):
            self.steps.clear()
            self.assertEqual(self.call(kind(self.steps, "result")), "result")
            self.assertEqual(self.steps, ["before word", "began word", "ended", ("answer", "result")])

    def test_after_comes_also_where_the_work_fails(self):
        for kind in (by_future, by_coroutine):
            self.steps.clear()
            with self.assertRaises(KeyError):
                self.call(kind(self.steps, KeyError("word")))
            self.assertEqual(self.steps, ["before word", "began word", "ended", ("answer", None)])

    def test_a_skipped_function_is_not_called_and_nothing_comes_after_it(self):
        for kind, nothing in ((by_future, DONE), (by_coroutine, None)):
            self.steps.clear()
            self.assertEqual(self.call(kind(self.steps, "result"), SKIP), nothing)
            self.assertEqual(self.steps, ["before word"])

    def test_a_childs_function_is_salts_own(self):
        self.guard.main = False
        for kind in (by_future, by_coroutine):
            self.steps.clear()
            self.assertEqual(self.call(kind(self.steps, "result")), "result")
            self.assertEqual(self.steps, ["began word", "ended"])

    def test_a_function_that_raises_at_once_is_over(self):
        def original(self, word):
            raise KeyError(word)

        with self.assertRaises(KeyError):
            self.call(original)
        self.assertEqual(self.steps, ["before word", ("answer", None)])
