"""What a minion needs by configuration, highstate and log. Run by `scripts/lint`; needs no Salt."""

import importlib.util
import os
import tempfile
import unittest

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sidle_needs.py")
spec = importlib.util.spec_from_file_location("sidle_needs", PATH)
needs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(needs)

LOG = b"""2026-11-19 10:00:00,000 [salt.minion :1][INFO ][1] User root Executing command vault.read_secret with jid 20261119100000123456
2026-11-20 10:00:00,000 [salt.minion :1][INFO ][1] User root Executing command vault.read_secret with jid 20261120100000123456
2026-11-21 10:00:00,000 [salt.minion :1][INFO ][1] Executing command nonsense with jid 20261121100000123456
Executing command a.b;rm with jid 20261121100000123456
"""


class Needs(unittest.TestCase):
    def found(self, configured=(), states=(), log=b""):
        with tempfile.NamedTemporaryFile() as file:
            file.write(log)
            file.flush()
            return needs.needs(list(configured), {"states": list(states)}, file.name)

    def test_each_source_is_named_and_a_function_of_the_log_has_its_last_day(self):
        configured = [("beacons", "load", "beacon load"), ("module", "zabbix.go", "schedule nap"), ("provider", "systemd", "provider of service"), ("returner", "sqlite3", "return")]
        found = self.found(configured, [{"function": "file.managed", "sls": "web"}, {"function": "file.managed", "sls": "web"}], LOG)
        self.assertEqual([(each["kind"], each["name"], each["where"], each["last"]) for each in found], [
            ("beacons", "load.beacon", "beacon load", None), ("module", "systemd", "provider of service", None), ("module", "vault.read_secret", "log", "2026-11-20"),
            ("module", "zabbix.go", "schedule nap", None), ("returner", "sqlite3.returner", "return", None), ("states", "file.managed", "highstate, SLS web", None)])

    def test_nonsense_is_no_need_and_a_missing_log_tells_nothing(self):
        self.assertEqual(self.found([("module", "a\x1b[2J", "x"), ("module", "x" * 200, "x"), ("module", "", "x")]), [])
        for path in (None, "/nowhere", "udp://10.0.0.1", os.path.dirname(PATH)):
            self.assertEqual(needs.needs([], None, path), [])
        many = [("module", f"m.f{number}", "x") for number in range(2 * needs.NEEDS_MAX)]
        self.assertEqual(len(self.found(many)), needs.NEEDS_MAX)


if __name__ == "__main__":
    unittest.main()
