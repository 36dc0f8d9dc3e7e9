"""What the guard reports of the options that its process runs with."""

import pathlib
import sys
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import options  # noqa: E402

OPTS = {"id": 7, "master": "salt", "cachedir": "/c", "extension_modules": "/c/extmods", "pki_dir": "/p", "sock_dir": "/s/12", "pidfile": "/s/12/minion.pid",
        "master_uri_format": "ip_only", "multiprocessing": "False"}


class OptionsTest(unittest.TestCase):
    """Sidle looks where the process works, at the paths that programs of the host use."""

    def test_the_slots_own_paths_are_not_reported(self):
        paths = types.SimpleNamespace(default_sock_dir="/s", default_pidfile="/run/m.pid")
        described = options.Described()
        found = described.of(dict(OPTS, master="10.0.0.1"), paths)
        self.assertEqual([found[name] for name in ("sock_dir", "pidfile", "cachedir", "id", "multiprocessing")], ["/s", "/run/m.pid", "/c", "7", True])
        self.assertEqual(found["masters"], [{"name": "10.0.0.1", "host": "10.0.0.1", "request_port": 4506, "publish_port": None}])

    def test_it_is_made_once_for_the_options_of_a_process(self):
        paths = types.SimpleNamespace(default_sock_dir=None, default_pidfile=None)
        described, opts = options.Described(), dict(OPTS)
        first = described.of(opts, paths)
        self.assertEqual((first["sock_dir"], first["pidfile"]), ("/s/12", "/s/12/minion.pid"), "a refused guard has moved nothing")
        self.assertIs(described.of(opts, paths), first)
        self.assertEqual(described.of(dict(opts, cachedir="/d"), paths)["cachedir"], "/d", "Salt begins again in the same process")
        self.assertIsNone(described.of(None, types.SimpleNamespace(default_sock_dir=None, default_pidfile=None)))

    def test_masters_that_are_not_known_do_not_hide_the_rest(self):
        for more, why in (({"master_type": "func"}, "can't be known"), ({"master_type": "x"}, "does not know"), ({"master": "sdb://a"}, "looks that up"),
                          ({"master_port": "x"}, "not a port"), ({"publish_port": None}, "not a port"), ({"master": []}, "names no master"),
                          ({"master": "salt"}, "salt")):
            found = options.described(dict(OPTS, **more))
            self.assertIn(why, found["masters_unknown"], more)
            self.assertEqual((found["masters"], found["cachedir"]), ([], "/c"))
        for kind, need in (("failover", "any"), ("distributed", "any"), ("disable", "none"), ("str", "all")):
            self.assertEqual(options.described(dict(OPTS, master="10.0.0.1", master_type=kind))["need"], need)


if __name__ == "__main__":
    unittest.main()
