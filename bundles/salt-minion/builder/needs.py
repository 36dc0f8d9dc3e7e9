"""Check that a tree has all that added packages need, in versions that fit."""

import json

from .process import Refusal, failed

# Arguments: the directory of the packages, then the names of those to check. Prints [package, version, need, what is there or null].
# `packaging` is the copy that pip brings; markers count for the Python that runs this.
UNMET = """\
import sys
# The directory in which the build runs.
del sys.path[0]
import importlib.metadata, json
from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import InvalidVersion

there = {}
for found in importlib.metadata.distributions(path=[sys.argv[1]]):
    if found.metadata["Name"]:
        there.setdefault(canonicalize_name(found.metadata["Name"]), found)
left, seen, unmet = [(canonicalize_name(name), "") for name in sys.argv[2:]], set(), []
while left:
    name, extra = left.pop()
    if (name, extra) in seen or name not in there:
        continue
    seen.add((name, extra))
    for text in there[name].metadata.get_all("Requires-Dist") or ():
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        if need.marker and not need.marker.evaluate({"extra": extra}) or extra and "extra" not in str(need.marker):
            continue
        target = canonicalize_name(need.name)
        version = there[target].version if target in there else None
        try:
            is_met = version is not None and need.specifier.contains(version, prereleases=True)
        except InvalidVersion:
            is_met = True
        if not is_met:
            own = f"{there[target].metadata['Name']} {version}" if version else None
            unmet.append([name, there[name].version, need.name + str(need.specifier), own])
        # Salt's own extras are what a release is built with.
        left += [(target, canonicalize_name(each)) for each in need.extras if target != "salt"]
print(json.dumps(sorted(unmet, key=str)))
"""


def refuse_unmet(tree, site, names, toolbox, remedy):
    """Refuse packages of these names that need what the tree lacks, or has in a version that does not fit."""
    done = toolbox.python_of(tree, ["-c", UNMET, site, *names])
    if done.returncode:
        raise failed(done, "cannot check what the extras need", "see the lines above")
    for name, version, need, there in json.loads(done.stdout)[:1]:
        what = f"the release has {there}" if there else "the release does not have it"
        raise Refusal(f"cannot add the extra {name} {version}: it needs {need}, and {what}", remedy)
