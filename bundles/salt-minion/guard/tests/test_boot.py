"""How the guard begins in a minion that starts."""

import multiprocessing
import sys
import unittest
from unittest import mock

import sidle_guard


class TestStart(unittest.TestCase):
    """The processes of a minion."""

    def started(self, version):
        """Boot as this Python, and give the start methods that were set."""
        hook, slot = mock.MagicMock(), mock.MagicMock()
        modules = {"sidle_guard.hook": hook, "sidle_guard.slot": slot}
        with (
            mock.patch.dict(sys.modules, modules),
            mock.patch.object(sidle_guard, "hook", hook, create=True),
            mock.patch.object(sys, "orig_argv", ["python3", "/x/bin/salt-minion"]),
            mock.patch.object(sys, "version_info", version),
            mock.patch.object(multiprocessing, "set_start_method") as set_method,
        ):
            sidle_guard.boot()
        self.assertTrue(hook.install.called)
        return set_method.mock_calls

    def test_processes_of_a_minion_are_forks_where_python_would_start_them_otherwise(self):
        self.assertEqual(self.started((3, 14, 0)), [mock.call("fork", force=True)])

    def test_before_that_nothing_is_set(self):
        self.assertEqual(self.started((3, 13, 7)), [])


if __name__ == "__main__":
    unittest.main()
