"""Make wheels that salt-pip installs over a minion, with the tree's own Python: TREE DIRECTORY

site_pure and site_fourth are pure. site_compiled has a module in C for this minor version of Python (the one of markupsafe, under another
package's name). idna shadows the package of the tree: its files, another version, and a mark.
"""

import pathlib
import sys
import zipfile

VERSION = "1.0"
SHADOW = "99.0"


def write(directory, name, version, tag, files):
    """Write one wheel; pip makes the list of files itself."""
    info = f"{name}-{version}.dist-info"
    purelib = str(tag.startswith("py3")).lower()
    with zipfile.ZipFile(directory / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")


def main(tree, directory):
    """Make the four wheels."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    [site] = pathlib.Path(tree).glob("lib/python3*/site-packages")
    minor = "cp{}{}".format(*sys.version_info)
    for name in ("site_pure", "site_fourth"):
        write(directory, name, VERSION, "py3-none-any", {f"{name}/__init__.py": f"answer = {VERSION!r}\n"})
    [compiled] = (site / "markupsafe").glob("_speedups.*.so")
    files = {
        "site_compiled/__init__.py": "from . import _speedups\n\n"
                                     f"answer = {VERSION!r} + _speedups._escape_inner('<')\n",
        f"site_compiled/{compiled.name}": compiled.read_bytes(),
    }
    write(directory, "site_compiled", VERSION, f"{minor}-{minor}-linux_x86_64", files)
    files = {str(path.relative_to(site)): path.read_bytes() for path in sorted((site / "idna").glob("*.py"))}
    files["idna/__init__.py"] += f"\nanswer = {SHADOW!r}\n".encode()
    write(directory, "idna", SHADOW, "py3-none-any", files)


main(*sys.argv[1:])
