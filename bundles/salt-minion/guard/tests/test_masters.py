"""What masters have said of themselves, as a rehearsal reads it. Run by `scripts/lint`; needs no Salt."""

import importlib.util
import json
import os
import tempfile
import time
import unittest

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sidle_masters.py")
spec = importlib.util.spec_from_file_location("sidle_masters", PATH)
masters = importlib.util.module_from_spec(spec)
spec.loader.exec_module(masters)

GOOD = {"master": "m1", "version": "3007.17", "minimum_auth_version": 3, "at": 1_795_000_000, "source": "a plan"}


class Known(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.cache = place.name
        self.place = os.path.join(self.cache, "sidle", "masters")
        os.makedirs(self.place)

    def put(self, name, said):
        with open(os.path.join(self.place, name), "w", encoding="utf-8") as file:
            file.write(said if isinstance(said, str) else json.dumps(said))

    def known(self, master, **more):
        return masters.known({"cachedir": self.cache, "master": master, **more})

    def test_the_newest_word_of_each_configured_master_counts(self):
        self.put("a.told", GOOD)
        self.put("b.told", dict(GOOD, version="3008.5", at=GOOD["at"] + 5))
        self.put("c.told", dict(GOOD, master="gone"))
        self.put("d.told", dict(GOOD, master="m2", minimum_auth_version=None))
        found = self.known(["m1", "m2:4506", "m3"])
        self.assertEqual(found["named"], ["m1", "m2:4506", "m3"])
        self.assertEqual([(said["name"], said["version"], said["minimum_auth_version"]) for said in found["told"]], [("m1", "3008.5", 3), ("m2:4506", "3007.17", None)])
        self.assertLess(abs(found["now"] - time.time()), 60)
        self.assertEqual(self.known("m1", master_type="disable"), {"named": [], "told": [], "now": self.known("m1")["now"]})
        self.assertEqual(masters.known({"cachedir": "/nowhere", "master": "salt"})["told"], [])

    def test_what_no_master_has_said_is_not_known(self):
        wrong = ["", "[]", "{", dict(GOOD, version=5), dict(GOOD, version="a\nb"), dict(GOOD, at=-1), dict(GOOD, at=1.5), dict(GOOD, at=True), dict(GOOD, minimum_auth_version="3"),
            dict(GOOD, source="x" * 500), {key: GOOD[key] for key in GOOD if key != "minimum_auth_version"}, json.dumps(GOOD) + " " * 5000 + "x"]
        for number, said in enumerate(wrong):
            self.put(f"{number}.told", said)
        self.put("whole.new", GOOD)
        os.symlink("/dev/zero", os.path.join(self.place, "link.told"))
        os.mkfifo(os.path.join(self.place, "pipe.told"))
        self.assertEqual(self.known("m1")["told"], [])


if __name__ == "__main__":
    unittest.main()
