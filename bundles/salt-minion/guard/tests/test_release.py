"""What a release says of itself. Run by `scripts/lint`; needs no Salt."""

import importlib.util
import os
import sys
import types
import unittest
import unittest.mock

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sidle_release.py")
spec = importlib.util.spec_from_file_location("sidle_release", PATH)
release = importlib.util.module_from_spec(spec)
# The program takes its own directory off the path.
with unittest.mock.patch.object(sys, "path", list(sys.path)):
    spec.loader.exec_module(release)


class Names(unittest.TestCase):
    """The names by which the loader calls a module."""

    def names(self, file, **attributes):
        """Give the names of a module of this file."""
        module = types.SimpleNamespace(**attributes)
        loader = types.SimpleNamespace(loaded_base_name="salt.loaded")
        with unittest.mock.patch.dict(sys.modules, {f"salt.loaded.int.states.{file}": module}):
            return release.own_names(loader, "states", file)

    def test_aliases_stand_beside_the_name_of_the_module(self):
        """An alias takes no name away."""
        self.assertEqual(self.names("test"), [])
        self.assertEqual(self.names("test", __virtualname__="test"), [])
        self.assertEqual(self.names("aptpkg", __virtualname__="pkg"), ["pkg"])
        aliases = ("moby_container",)
        for virtual in ({}, {"__virtualname__": "docker_container"}):
            self.assertEqual(self.names("docker_container", __virtual_aliases__=aliases, **virtual), ["docker_container", "moby_container"])
        self.assertEqual(self.names("yumpkg", __virtualname__="pkg", __virtual_aliases__=aliases), ["pkg", "moby_container"])


if __name__ == "__main__":
    unittest.main()
