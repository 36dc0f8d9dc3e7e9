"""Make Salt's onedir out of a tree, as Salt's own build leaves it: TREE SDIST RELENV-WHEEL ONEDIR

Its Python starts with relenv's hook, what salt-pip installs is found by Salt's own file, and its programs lie in the root of the tree.
"""

import configparser
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

HOOK = "import relenv.runtime; relenv.runtime.bootstrap();"
PROGRAM = """{shebang}# -*- coding: utf-8 -*-
import re
import sys
from {module} import {function}
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit({function}())
"""


def forget_own(onedir, site):
    """Remove what sidle's builder has added: the programs and the place of extras."""
    for path in [*site.glob("_sidle_extras*"), *(onedir / "bin").glob("salt-*")]:
        path.unlink()


def take_from_sdist(sdist, site):
    """Copy the files by which Salt's Python finds extras."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            if "/pkg/common/onedir/_salt_onedir_extras." in member.name:
                (site / pathlib.Path(member.name).name).write_bytes(archive.extractfile(member).read())
    (site / "salt" / "_pkg.txt").write_text("onedir", encoding="utf-8")


def write_programs(onedir, site):
    """Write each program of Salt as relenv's pip does: it finds its Python by its own path."""
    shebang = subprocess.run(
        [onedir / "bin/python3", "-c", "import relenv.common as c; print(c.format_shebang('/bin/python3'), end='')"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    [points] = site.glob("salt-*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read(points)
    for name, entry in parser["console_scripts"].items():
        module, _, function = entry.partition(":")
        program = onedir / name
        program.write_text(PROGRAM.format(shebang=shebang, module=module, function=function), encoding="utf-8")
        program.chmod(0o755)


def list_files(site):
    """Write the lists of files that pip left in the onedir, and that sidle's builder has removed: pip uninstalls by them."""
    for info in site.glob("*.dist-info"):
        name = info.name.split("-")[0]
        listed = info / "top_level.txt"
        tops = listed.read_text(encoding="utf-8").split() if listed.exists() else [name, name.lower(), f"{name}.py"]
        files = [info, *(site / top for top in tops)]
        files = [path for top in files for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file()]
        lines = [f"{path.relative_to(site)},," for path in sorted({*files, info / "RECORD"})]
        (info / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(tree, sdist, relenv, onedir):
    """Make the onedir."""
    onedir = pathlib.Path(onedir)
    shutil.copytree(tree, onedir, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    [site] = onedir.glob("lib/python3*/site-packages")
    forget_own(onedir, site)
    take_from_sdist(sdist, site)
    with zipfile.ZipFile(relenv) as wheel:
        wheel.extractall(site)
    (site / "relenv.pth").write_text(HOOK, encoding="utf-8")
    # The hook sets up the OpenSSL that relenv builds, by its name without a number.
    [crypto] = (onedir / "lib").glob("libcrypto.so.*")
    (onedir / "lib" / "libcrypto.so").symlink_to(crypto.name)
    write_programs(onedir, site)
    list_files(site)


main(*sys.argv[1:])
