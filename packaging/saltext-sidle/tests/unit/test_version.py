"""The extension has sidle's version. Run by `scripts/lint`; needs no Salt."""

import re
import unittest
from pathlib import Path

EXTENSION = Path(__file__).resolve().parents[2]
SIDLE = EXTENSION.parents[1] / "Cargo.toml"


@unittest.skipUnless(SIDLE.exists(), "an unpacked sdist lies beside no sidle")
class Version(unittest.TestCase):
    def test_it_is_that_of_sidle(self):
        own, sidle = (
            re.search(r'^version = "(.+)"$', file.read_text(encoding="utf-8"), re.M)[1] for file in (EXTENSION / "pyproject.toml", SIDLE)
        )
        self.assertEqual(own, sidle)

    def test_a_host_is_asked_for_that_sidle(self):
        program = EXTENSION / "src/saltext/sidle/modules/_sidle_program.py"
        needed = re.search(r'^NEEDED = "(.+)"$', program.read_text(encoding="utf-8"), re.M)[1]
        self.assertEqual(needed, re.search(r'^version = "(.+)"$', SIDLE.read_text(encoding="utf-8"), re.M)[1])
