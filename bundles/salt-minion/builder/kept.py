"""Keep modules of an older release of Salt that the newer one dropped: their files, the helpers they import, and shims for what moved."""

import ast
import difflib
import email.parser
import hashlib
import re
import shutil

from .packages import site_directory
from .process import Refusal, say

# Kinds of modules as the loaders call them, and their directories below salt/.
FOLDERS = {
    "module": "modules", "states": "states", "grains": "grains", "pillar": "pillar", "beacons": "beacons", "returner": "returners",
    "render": "renderers", "engines": "engines", "proxy": "proxy", "sdb": "sdb", "output": "output", "matchers": "matchers",
    "executor": "executors", "tops": "tops", "fileserver": "fileserver",
}
# Packages that Salt brought along once, and that a later Salt takes from where everybody does.
MOVED = {"salt.ext.tornado": "tornado"}
SHIM = '"""Kept by sidle: {old} is {new} in this Salt."""\nimport sys\n\nimport {new}\n\nsys.modules[__name__] = sys.modules["{new}"]\n'
NAME = re.compile(r"(?:(\w+)\.)?(\w+)")
CALL = re.compile(r"""__salt__\[\s*["'](\w+)\.\w+["']\s*\]""")


class Site:
    """The packages' directory of one release, and what its Salt defines."""

    def __init__(self, directory):
        self.directory = directory
        self._names = {}

    def file(self, module):
        """The file of a module by its dotted name, relative to the directory; None: there is none."""
        path = module.replace(".", "/")
        return next((name for name in (f"{path}.py", f"{path}/__init__.py") if (self.directory / name).is_file()), None)

    def parsed(self, file):
        """The syntax of a file."""
        try:
            return ast.parse((self.directory / file).read_bytes())
        except (SyntaxError, ValueError) as error:
            raise Refusal(f"cannot keep {file}: it cannot be read as Python: {error}", "leave it out") from error

    def has(self, module, name):
        """Whether a module has a name: defined, imported, or a module below it. A module that makes names by itself may have any."""
        return name in self.names(module) or "__getattr__" in self.names(module) or self.file(f"{module}.{name}") is not None

    def names(self, module):
        """All names that a module defines or imports, those of `import *` included."""
        if module not in self._names:
            self._names[module] = set()
            file = self.file(module)
            if file:
                self._names[module] = self._defined(ast.walk(self.parsed(file)), file)
        return self._names[module]

    def _defined(self, nodes, file):
        found = set()
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    if alias.name == "*":
                        found |= self.names(absolute(node, file))
                    found.add((alias.asname or alias.name).split(".")[0])
        return found


def absolute(node, file):
    """The dotted name that a `from` imports from, in this file."""
    if not node.level:
        return node.module or ""
    parts = file.split("/")[:-node.level]
    return ".".join([*parts, *filter(None, [node.module])])


def lay(tree, names, old_root, origin):
    """Lay the named modules of the tree `old_root` into `tree`; give a record of each file."""
    new = Site(site_directory(tree))
    found = sorted({path.parent.resolve() for path in old_root.glob("lib*/python3*/*-packages/salt")})
    if not found:
        raise Refusal(f"cannot keep modules of {origin}: it has no lib/python3*/site-packages/salt", "name a release of Salt")
    old = Site(found[0])
    licence = licence_of(old.directory)
    chosen = [one for name in names for one in choose(name, old, new, origin)]
    record, laid = [], {file for _, _, file in chosen}
    for kind, name, file in chosen:
        say(f"keeping {file} of {origin}")
        helpers, shims = bring(file, old, new, laid, origin)
        copy(file, old, new)
        record.append({"name": name, "kind": kind, "file": file, "origin": origin, "licence": licence,
                       "sha256": hashlib.sha256((new.directory / file).read_bytes()).hexdigest(),
                       "helpers": sorted(helpers), "shims": sorted(shims)})
    return record


def choose(text, old, new, origin):
    """The files of a module, `NAME` of every kind or `KIND.NAME`, that the old release has and the new one has not."""
    fields = NAME.fullmatch(text)
    if not fields or (fields.group(1) and fields.group(1) not in FOLDERS):
        raise Refusal(f"cannot keep the module {text}: it is neither NAME nor KIND.NAME",
                      f"write tomcat, or states.tomcat; kinds are {', '.join(FOLDERS)}")
    wanted, name = fields.groups()
    kinds = [kind for kind in FOLDERS if wanted in (None, kind)]
    there = [(kind, old.file(f"salt.{FOLDERS[kind]}.{name}")) for kind in kinds]
    there = [(kind, file) for kind, file in there if file]
    if not there:
        stems = {path.stem for kind in kinds for path in (old.directory / "salt" / FOLDERS[kind]).glob("*.py")}
        near = difflib.get_close_matches(name, sorted(stems), 1)
        raise Refusal(f"cannot keep the module {text}: {origin} has none of this name",
                      f"did you mean {near[0]}?" if near else "the name is that of its file, without .py")
    gone = [(kind, name, file) for kind, file in there if not new.file(f"salt.{FOLDERS[kind]}.{name}")]
    if not gone:
        raise Refusal(f"cannot keep the module {text}: the new release has {', '.join(kind for kind, _ in there)} {name} of its own",
                      "leave it out of --keep-modules")
    return gone


def bring(file, old, new, laid, origin):
    """Bring what a file imports from Salt and the new release lacks: helper files, all the way down, and one level of shims."""
    helpers, shims, waiting = set(), set(), [file]
    while waiting:
        current = waiting.pop()
        for module, name in imports(current, old):
            moved = next((there for there in MOVED if module == there or module.startswith(f"{there}.")), None)
            if moved and (not new.file(module) or is_shim(module, new)):
                shims |= shim(moved, module, new)
            elif new.file(module):
                if name and not new.has(module, name) and not old.file(f"{module}.{name}"):
                    raise Refusal(f"cannot keep {file}: {current} uses {module}.{name}, which the new release does not have",
                                  "leave it out of --keep-modules, and rewrite it as a custom module")
            elif old.file(module):
                helper = old.file(module)
                if helper not in laid | helpers:
                    copy(helper, old, new)
                    helpers.add(helper)
                    waiting.append(helper)
            else:
                raise Refusal(f"cannot keep {file}: {current} imports {module}, which neither {origin} nor the new release has",
                              "leave it out of --keep-modules")
    return helpers, shims


def imports(file, site):
    """What a file takes from Salt: (module, name), the name None for the module itself."""
    tree, bound, found = site.parsed(file), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "salt":
                    found.append((alias.name, None))
                    bound[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and absolute(node, file).split(".")[0] == "salt":
            module = absolute(node, file)
            for alias in node.names:
                below = f"{module}.{alias.name}"
                if alias.name == "*" or not site.file(below):
                    found.append((module, None if alias.name == "*" else alias.name))
                else:
                    found.append((below, None))
                    bound[alias.asname or alias.name] = below
    return list(dict.fromkeys(found + used(tree, bound, site)))


def used(tree, bound, site):
    """The attributes of imported modules that a file uses: salt.utils.files.fopen."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            chain = [inner.id, *reversed(chain)]
            module = bound.get(".".join(chain[:-1]))
            if module and site.has(module, chain[-1]):
                found.append((module, chain[-1]))
    return found


def is_shim(module, new):
    """Whether a module of the new release is one that an earlier `shim` wrote."""
    return (new.directory / new.file(module)).read_text(encoding="utf-8").startswith('"""Kept by sidle: ')


def shim(moved, module, new):
    """Write modules that stand where a moved package was; give what they stand for."""
    place = MOVED[moved] + module[len(moved):]
    if not new.file(place):
        raise Refusal(f"cannot keep a module that imports {module}: the new release has no {place}, either", "leave it out of --keep-modules")
    written = set()
    for name, target in ((moved, MOVED[moved]), (module, place)):
        file = f"{name.replace('.', '/')}/__init__.py" if name == moved else f"{name.replace('.', '/')}.py"
        path = new.directory / file
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SHIM.format(old=name, new=target), encoding="utf-8")
        written.add(f"{name} is {target}")
    return written


def copy(file, old, new):
    """Copy a module's file, or all of its directory."""
    target = new.directory / file
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.endswith("/__init__.py") and not target.parent.joinpath("__init__.py").exists():
        shutil.copytree((old.directory / file).parent, target.parent, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(old.directory / file, target)


def licence_of(site):
    """The licence of a release's Salt."""
    for file in sorted(site.glob("salt-*.dist-info/METADATA")):
        return email.parser.Parser().parsestr(file.read_text(encoding="utf-8", errors="replace")).get("License", "")
    return "Apache-2.0"


def refuse_missing(record, description, site):
    """Refuse kept modules that the new release's loader did not load; tell what they call and nobody offers."""
    offers = description["offers"]
    missing = [f"{one['kind']} {one['name']}" for one in record if one["name"] not in offers[one["kind"]]["modules"]]
    if missing:
        raise Refusal(f"cannot keep {', '.join(missing)}: the new release's loader does not find them", "leave them out of --keep-modules")
    known = offers["module"]["modules"].keys() | {name for names in offers["module"]["names"].values() for name in names}
    for module, file in sorted(called(record, site).items()):
        if module not in known:
            say(f"warning: {file} calls the execution module {module}, which the new release does not have: keep it, too, if you need it")
    silent = [f"{one['kind']} {one['name']}" for one in record if not offers[one["kind"]]["modules"][one["name"]]]
    if silent:
        say(f"warning: {', '.join(silent)} offers no function")


def called(record, site):
    """The execution modules that kept modules call by name: {module: file}."""
    return {module: one["file"] for one in record for module in CALL.findall((site / one["file"]).read_text(encoding="utf-8"))}
