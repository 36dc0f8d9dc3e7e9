"""The layer of a release: extras of the recipe and modules of an older release, laid over a complete tree, and tried by its own loader."""

import collections
import configparser
import json

from . import extras, finish, guard, kept
from .packages import site_directory
from .process import Refusal, attempt, failed, run, say

# Read by `sidle_release.py`, which describes the release.
RECORD = "_sidle_layer.json"
# extras: pins; lock: its path; keep: names of modules; keep_from: the old release's tree; origin: what it is.
Request = collections.namedtuple("Request", "extras lock keep keep_from origin")
# The tree's own Python runs it: what an extra says that it brings must be there to be imported.
IMPORT = """\
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        sys.exit(f"import {name}: {type(error).__name__}: {error}")
"""
ALONE = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SALT_EXTRAS_DIR": "/nonexistent"}


def put(tree, request, toolbox, seconds, floor=None):
    """Lay the requested extras and modules over the tree; whatever does not load there is refused by name."""
    site = site_directory(tree)
    record = {"extras": [], "kept": take_off(site, request)}
    if request.extras:
        record["extras"] = extras.install(tree, request.extras, request.lock, toolbox, floor)
    if request.keep:
        record["kept"] += kept.lay(tree, request.keep, request.keep_from, request.origin)
    write(site, record)
    refuse_unimportable(tree, site, record)
    description = described(tree)
    refuse_broken(record, description)
    kept.refuse_missing(record["kept"], description, site)
    write(site, record)
    place = site.relative_to(tree)
    finish.compile_files(tree, [str(place / name) for name in added(record) if name.endswith(".py")])
    finish.normalise(site, seconds, tree)
    for folder in (site.parent, site.parent.parent, tree):
        finish.normalise_one(str(folder), tree, seconds)


def take_off(site, request):
    """Take off what an earlier layer added: all of its extras, since the recipe names those that the release is to have, and the kept modules that are asked for
    again. Give the other kept modules, which stay: no recipe names them."""
    former = read(site)
    if former is None:
        return []
    stay = [module for module in former["kept"] if not asked_again(module, request.keep)]
    needed = set(added({"extras": [], "kept": stay}))
    for name in sorted(set(added(former)) - needed):
        remove(site, name)
    (site / RECORD).unlink()
    gone = [f"{extra['name']} {extra['version']}" for extra in former["extras"] if extra["requested"]]
    say("taking off the extras of the base: " + (", ".join(gone) or "none"))
    if stay:
        say("keeping what the base has kept: " + ", ".join(module["file"] for module in stay))
    return stay


def read(site):
    """Give the record of the layer that a tree has; None: it has none."""
    path = site / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def extras_of(tree):
    """The names of the packages that an earlier layer added to a tree."""
    return [extra["name"] for extra in (read(site_directory(tree)) or {"extras": []})["extras"]]


def asked_again(module, names):
    """Whether a kept module is one of those that are asked for: NAME, or KIND.NAME."""
    return module["name"] in names or f"{module['kind']}.{module['name']}" in names


def remove(site, name):
    """Remove a file, what Python has compiled of it, and the directories that are empty then."""
    file = site / name
    file.unlink(missing_ok=True)
    if name.endswith(".py"):
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
    for folder in (file.parent / "__pycache__", *file.parents):
        if folder == site or (folder.exists() and any(folder.iterdir())):
            break
        if folder.exists():
            folder.rmdir()


def write(site, record):
    """Write what was added, for the description of the release."""
    (site / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def added(record):
    """All files that were added, relative to the packages' directory."""
    files = [name for extra in record["extras"] for name in extra["files"]]
    return files + [name for module in record["kept"] for name in [module["file"], *module["helpers"]]]


def described(tree):
    """What the tree's own Python and loader say of it."""
    told = run([tree / "bin" / "python3", "-E", "-s", "-B", "-W", "ignore", guard.SOURCE / "sidle_release.py"],
               "cannot load the modules of the tree", "see the lines above", env=ALONE, cwd="/")
    return json.loads(told)


def refuse_unimportable(tree, site, record):
    """Refuse an extra of the recipe whose own packages cannot be imported."""
    for extra in record["extras"]:
        if extra["requested"]:
            done = attempt([tree / "bin" / "python3", "-E", "-s", "-B", "-W", "ignore", "-c", IMPORT, *brought(site, extra)],
                           "cannot run the tree's Python", "build on a system that the tree starts on", env=ALONE, cwd="/")
            if done.returncode:
                raise failed(done, f"cannot add the extra {extra['name']} {extra['version']}: the tree's Python cannot import it",
                             "add what it lacks to the extras, or leave it out")


def brought(site, extra):
    """The modules that an extra is: those that its entry points for Salt name, or else its own packages."""
    points = configparser.ConfigParser(delimiters=["="])
    for name in extra["files"]:
        if name.endswith(".dist-info/entry_points.txt"):
            points.read(site / name, encoding="utf-8")
    if points.has_section("salt.loader"):
        return sorted({value.split(":")[0].strip() for _, value in points.items("salt.loader")})
    return sorted({name.split("/")[0].removesuffix(".py") for name in extra["files"]
                   if is_module(name)})


def is_module(name):
    """Whether a file makes its first directory, or itself, a module that can be imported by name."""
    return name.endswith(".py") and (name.count("/") == 0 or name.partition("/")[2] == "__init__.py")


def refuse_broken(record, description):
    """Refuse extras and kept modules that the release's loader cannot import."""
    owners = {file: f"the extra {extra['name']} {extra['version']}" for extra in record["extras"] for file in extra["files"]}
    owners.update((file, f"the kept module {module['name']}") for module in record["kept"] for file in [module["file"], *module["helpers"]])
    lines = [f"{owners[module['file']]}: {module['file']}: {module['reason']}"
             for module in description["broken"] if module["file"] in owners]
    if lines:
        raise Refusal("\n    ".join(["cannot use the tree: the release's loader cannot import what was added", *lines]),
                      "leave it out, or add what it lacks to the extras")
