"""Describe the release that this Python belongs to: its extras, its packages, and what each kind of its loader offers.

    TREE/bin/python3 -E -s -B -m sidle_release
    TREE/bin/python3 -E -s -B /path/of/sidle_release.py

`sidle pack` runs it in the finished tree, and writes what it says into the manifest. It reads the tree alone: no configuration, no master, and
nothing of the host, so that every machine gives the same answer. One JSON object goes to standard output, all else to standard error.

  schema 1
  extras: [{name, version, sha256, licence, requested, provides: {kind: [module]}}]    packages that the recipe added
  kept: [{name, kind, file, sha256, licence, origin, helpers: [file], shims: [text]}]  modules of an older release
  sbom: CycloneDX 1.5: each package of the tree, by its dist-info, and Python itself
  offers: {kind: {modules: {module: [function]}, names: {module: [name]}}}
          the loader's own answer, without asking a module whether it is for this machine (__virtual__, __init__, depends);
          module: the file's name; names: all names by which it is called (__virtualname__ or the file's, __virtual_aliases__), where that
          is not the file's name alone
  broken: [{kind, name, file, reason}]                        modules that cannot be imported
"""

import sys

if not sys.flags.isolated and sys.path:
    # The directory of the program, or the current one: it may be another release's packages.
    del sys.path[0]

import importlib.metadata
import json
import logging
import os
import re
import shutil
import tempfile

SCHEMA = 1
# What `build-tree` leaves beside Salt: the extras with their hashes, and the modules that it kept.
LAYER = "_sidle_layer.json"
REASON_LENGTH_MAX = 400
LICENCE_LENGTH_MAX = 120
# Kinds as the loaders call them: directory below salt/, tag, and the option of more directories where it has another name.
KINDS = {
    "module": ("modules", "module", None), "states": ("states", "states", None), "grains": ("grains", "grain", None),
    "pillar": ("pillar", "pillar", None), "beacons": ("beacons", "beacons", None), "returner": ("returners", "returner", None),
    "render": ("renderers", "render", None), "engines": ("engines", "engines", None), "proxy": ("proxy", "proxy", None),
    "sdb": ("sdb", "sdb", None), "output": ("output", "output", "outputter_dirs"), "matchers": ("matchers", "matchers", None),
    "executor": ("executors", "executors", None), "tops": ("tops", "top", None), "fileserver": ("fileserver", "fileserver", None),
}
PACKED = ("salt", "utils", "grains", "pillar", "context", "proxy", "states", "serializers", "resource", "resource_funcs", "ret")


def main():
    """Describe the release and print it."""
    output = os.dup(1)
    os.dup2(2, 1)
    own = os.path.realpath(sys.prefix) + os.sep
    # What this machine has in Salt's extras directory is not the release's.
    sys.path[:] = [path for path in sys.path if os.path.realpath(path).startswith(own)]
    scratch = tempfile.mkdtemp(prefix="sidle-release-")
    try:
        text = json.dumps(described(scratch), sort_keys=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    with os.fdopen(output, "w", encoding="ascii") as file:
        file.write(text + "\n")


def described(scratch):
    """The whole description."""
    layer = written_layer()
    offers, files, broken = offered(scratch)
    extras = [{**extra, "provides": provided(extra.get("files", []), files)} for extra in layer["extras"]]
    known = distributions()
    for extra in extras:
        extra["licence"] = (licence_of(known[extra["name"]].metadata) if extra["name"] in known else None) or ""
    hashes = {extra["name"]: extra["sha256"] for extra in extras}
    for extra in extras:
        extra.pop("files", None)
    return {"schema": SCHEMA, "extras": extras, "kept": layer["kept"], "sbom": bill(hashes, layer["kept"]),
            "offers": offers, "broken": broken}


def written_layer():
    """What `build-tree` wrote about extras and kept modules; a tree without a layer has none."""
    for directory in sys.path:
        path = os.path.join(directory, LAYER)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return {"extras": [], "kept": [], **json.load(file)}
    return {"extras": [], "kept": []}


def provided(own_files, files):
    """Modules of each kind that come from these files; paths are relative to the packages' directory."""
    own, found = set(own_files), {}
    for kind, modules in files.items():
        names = sorted(name for name, file in modules.items() if file in own)
        if names:
            found[kind] = names
    return found


def offered(scratch):
    """What each kind offers, the file of each module, and what cannot be imported."""
    import salt.config
    from salt.loader.lazy import LazyLoader
    from salt.utils.decorators import Depends

    # Which programs this machine has is no property of the release.
    Depends.enforce_dependencies = classmethod(lambda *_, **__: None)
    run = LazyLoader.run
    LazyLoader.run = lambda self, function, *words, **named: (
        None if getattr(function, "__name__", "") == "__init__" else run(self, function, *words, **named))
    logging.disable(logging.CRITICAL)
    opts = dict(salt.config.DEFAULT_MINION_OPTS)
    opts.update(cachedir=scratch, extension_modules=os.path.join(scratch, "none"), grains={}, pillar={}, file_client="local")
    opts.update(__role="minion", id="sidle")
    offers, files, broken = {}, {}, []
    for kind in KINDS:
        offers[kind], files[kind], failed = of_kind(kind, opts)
        broken += failed
    return offers, files, broken


def of_kind(kind, opts):
    """Load all modules of one kind, whatever they say of this machine."""
    import salt.loader
    from salt.loader.lazy import LazyLoader

    folder, tag, directories = KINDS[kind]
    places = salt.loader._module_dirs(opts, folder, tag, ext_type_dirs=directories)
    # What a module finds there is filled by the minion, and empty here.
    pack = {f"__{name}__": {} for name in PACKED}
    loader = LazyLoader(places, opts, tag=tag, virtual_enable=False, pack=pack)
    names, files, failed = {}, {}, []
    for name in sorted(loader.file_mapping):
        if name == "__init__":
            continue
        path = loader.file_mapping[name][0]
        try:
            reason = None if loader._load_module(name) else loader.missing_modules.get(name, "")
        except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes.
            reason = error
        if reason is not None:
            failed.append({"kind": kind, "name": name, "file": relative(path), "reason": told(reason)})
            continue
        files[name] = relative(path)
        called = own_names(loader, tag, name)
        if called:
            names[name] = called
    modules = {name: [] for name in files}
    for function in loader._dict:
        module, _, function_name = function.partition(".")
        modules.setdefault(module, []).append(function_name)
    return {"modules": {name: sorted(found) for name, found in modules.items()}, "names": names}, files, failed


def own_names(loader, tag, name):
    """All names by which a module is called, as Salt's loader takes them; none: its file's name alone."""
    for place in ("int", "ext"):
        module = sys.modules.get(f"{loader.loaded_base_name}.{place}.{tag}.{name}")
        if module is not None:
            called = [getattr(module, "__virtualname__", None) or name, *(getattr(module, "__virtual_aliases__", None) or ())]
            called = [text for text in dict.fromkeys(called) if isinstance(text, str) and text]
            return called if called != [name] else []
    return []


def relative(path):
    """A file as the packages' directory names it."""
    path = os.path.realpath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "__init__.py")
    for directory in sys.path:
        directory = os.path.realpath(directory) + os.sep
        if directory.endswith("-packages" + os.sep) and path.startswith(directory):
            return path[len(directory):]
    return path


def bill(hashes, kept):
    """The bill of materials, CycloneDX 1.5, sorted by name."""
    python = "{}.{}.{}".format(*sys.version_info)
    components = [{"type": "library", "name": "python", "version": python, "purl": f"pkg:generic/python@{python}",
                   "licenses": [{"license": {"name": "PSF-2.0"}}]}]
    for name, distribution in sorted(distributions().items()):
        component = {"type": "library", "name": name, "version": distribution.version,
                     "purl": f"pkg:pypi/{name}@{distribution.version}"}
        licence = licence_of(distribution.metadata)
        if licence:
            component["licenses"] = [{"license": {"name": licence}}]
        if name in hashes:
            component["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
        components.append(component)
    for module in kept:
        version = module["origin"].rpartition(" ")[2]
        components.append({"type": "file", "name": module["file"], "version": version,
                           "licenses": [{"license": {"name": module["licence"]}}],
                           "hashes": [{"alg": "SHA-256", "content": module["sha256"]}]})
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def distributions():
    """The packages of the tree by their normalised names."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata.get("Name")
        if name:
            found.setdefault(normalised(name), distribution)
    return found


def normalised(name):
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(metadata):
    """The licence in a few words, from the fields that packages use for it; None: the package names none."""
    # `get`: the copy of importlib.metadata that Salt 3006 brings raises an error for a field that is not there.
    expression = metadata.get("License-Expression")
    named = (metadata.get("License") or "").strip().split("\n")[0].strip()
    classified = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if text.startswith("License ::")]
    text = expression or (named if named.lower() != "unknown" else "") or ", ".join(classified)
    return text[:LICENCE_LENGTH_MAX] or None


def told(error):
    """An exception, or the loader's own words, in one line."""
    text = str(error)
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = " ".join(text.split())
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"


if __name__ == "__main__":
    main()
