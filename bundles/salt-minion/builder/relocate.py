"""Let programs and modules of a tree find its libraries by where they are themselves."""

import os

from .process import Refusal, say

LIBRARY_DIRECTORIES = ("lib", "lib64")


def libraries(tree, toolbox, origin=None):
    """Give every ELF file that needs a library of the tree a search path relative to itself."""
    shipped = {
        file.name: directory
        for directory in (tree / name for name in LIBRARY_DIRECTORIES) if directory.is_dir()
        for file in directory.iterdir() if ".so" in file.name and file.is_file()
    }
    changed = 0
    for file in elf_files(tree):
        try:
            needed = toolbox.patchelf("--print-needed", file).split()
            old = [entry for entry in toolbox.patchelf("--print-rpath", file).split(":") if entry]
        except Refusal:
            continue  # An object file, or a static program: it loads nothing.
        directories = sorted({shipped[name] for name in needed if name in shipped})
        new = search_path(file, tree, old, [*beside(file, needed, directories), *directories], origin)
        if new != old:
            toolbox.patchelf("--set-rpath", ":".join(new), file)
            changed += 1
    say(f"made {changed} programs and modules independent of where the tree is")


def beside(file, needed, directories):
    """The file's own directory, if it needs `directories` and a library beside it.

    A library without a search path takes that of the module that loads it, but no longer as soon as it has one of its own: libzmq of a wheel would
    not find the libsodium that lies beside it.
    """
    return [file.parent] if directories and any((file.parent / name).is_file() for name in needed) else []


def search_path(file, tree, old, directories, origin):
    """The entries of `old` that can move, and those for the tree's library `directories`."""
    entries = []
    for entry in old:
        if origin and (entry + "/").startswith(f"{origin}/"):
            entry = relative(file, tree / os.path.relpath(entry, origin))
        if entry.startswith("$ORIGIN"):
            entries.append(entry)
    return list(dict.fromkeys(entries + [relative(file, directory) for directory in directories]))


def relative(file, directory):
    """`directory` as the dynamic linker finds it from `file`."""
    way = os.path.relpath(directory, file.parent)
    return "$ORIGIN" if way == "." else f"$ORIGIN/{way}"


def elf_files(tree):
    """All ELF files of the tree, sorted; links to them are not files."""
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield type(tree)(path)
