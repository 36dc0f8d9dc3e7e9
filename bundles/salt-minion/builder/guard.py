"""Put the guard into a tree: what lets two of its minions run side by side, and the program that rehearses it."""

import pathlib
import shutil

from .process import Refusal

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "guard"
PACKAGE = "sidle_guard"
# Read by Python at every start; it loads the package only where a gate is.
LOADER = "sidle_guard.pth"


def put(tree):
    """Copy the guard beside Salt, in place of one that is there; gives its files and directories."""
    sites = sorted({found.parent.resolve() for found in tree.glob("lib*/python3*/*-packages/salt")})
    if not sites:
        raise Refusal(f"cannot put the guard into {tree}: there is no lib/python3*/site-packages/salt",
                      "set SIDLE_TREE to the root of a Salt minion's tree")
    written = []
    for site in sites:
        package = site / PACKAGE
        if package.exists():
            shutil.rmtree(package)
        package.mkdir()
        for source in sorted((SOURCE / PACKAGE).glob("*.py")):
            shutil.copyfile(source, package / source.name)
        # Anew, never written into: the file may be shared with another tree.
        (site / LOADER).unlink(missing_ok=True)
        shutil.copyfile(SOURCE / LOADER, site / LOADER)
        written += [package, site / LOADER]
        for program in sorted(SOURCE.glob("*.py")):
            (site / program.name).unlink(missing_ok=True)
            shutil.copyfile(program, site / program.name)
            written.append(site / program.name)
    return written
