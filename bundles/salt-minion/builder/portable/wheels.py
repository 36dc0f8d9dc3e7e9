"""Make the wheels that the package index lacks for hosts with an old C library."""

import base64
import hashlib
import re
import shutil
import zipfile

from ..process import Refusal, say

# The index has pyzmq for newer C libraries only, and of its files the bundled libsodium alone needs one.
PYZMQ = re.compile(r"pyzmq==(\S+)")
OFFERED_FLOORS = ("2_28", "2_26")
SODIUM = re.compile(r"\.libs/(libsodium-[^/]+)$")
SODIUM_ARCHIVE = "libsodium.a"


def pyzmq_version(pins):
    """The version of pyzmq in a list of pins, or None."""
    return next((found.group(1) for found in map(PYZMQ.fullmatch, pins) if found), None)


def compile_sodium(source, sources, workshop, into):
    """Put libsodium into a directory, as an archive of object files."""
    say(f"compiling {source.package} {source.version}")
    top = sources.unpack(source, workshop.directory / source.package)
    workshop.run(["sh", "configure", "--quiet", "--prefix=/usr", "--disable-shared", "--with-pic"], top)
    workshop.make(top / "src" / "libsodium")
    shutil.copyfile(top / "src" / "libsodium" / ".libs" / SODIUM_ARCHIVE, into / SODIUM_ARCHIVE)


def adapt(wheel, archive, floor, workshop, into):
    """Write a wheel with another libsodium inside, under the same name: what asks for it finds it."""
    tag = "manylinux_{}_{}_{}".format(*floor, workshop.machine)
    name = re.sub(r"manylinux.*\.whl$", f"{tag}.whl", wheel.name)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(into / name, "w", zipfile.ZIP_DEFLATED) as new:
        record, place, replaced = [], None, 0
        for member in old.infolist():
            content = old.read(member)
            found = SODIUM.search(member.filename)
            if found:
                content, replaced = linked(archive, found.group(1), workshop), replaced + 1
            elif member.filename.endswith(".dist-info/WHEEL"):
                content = retagged(content.decode(), tag).encode()
            elif member.filename.endswith(".dist-info/RECORD"):
                place = member
                continue
            new.writestr(member, content)
            record.append(f"{member.filename},sha256={record_digest(content)},{len(content)}")
        new.writestr(place, "\n".join([*record, f"{place.filename},,", ""]))
    if replaced != 1:
        raise Refusal(f"cannot adapt {wheel.name}: it has {replaced} files of libsodium, not one", "report this: wheels.py must change")


def linked(archive, soname, workshop):
    """Give the bytes of a shared libsodium of that name."""
    # The linker gives the name: a patched file may have a segment at an address that old loaders refuse.
    target = workshop.directory / soname
    workshop.run(["gcc", "-shared", "-pthread", *workshop.linker_flags.split(), f"-Wl,-soname,{soname}", "-o", target,
                  "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"], workshop.directory)
    workshop.run(["strip", "--strip-unneeded", target], workshop.directory)
    return target.read_bytes()


def retagged(text, tag):
    """The text of a WHEEL file with one platform tag in place of those that it has."""
    changed = re.sub(r"^(Tag: \S+-)manylinux\S+$", rf"\g<1>{tag}", text, flags=re.MULTILINE)
    return "\n".join(dict.fromkeys(changed.split("\n")))


def record_digest(content):
    """A SHA-256 as RECORD files have it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def fits(version, toolbox, scratch):
    """Whether the index has a pyzmq that this Python's pip takes: it looks for wheels that fit the floor only."""
    try:
        toolbox.pip(["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch, f"pyzmq=={version}"], "", "")
    except Refusal:
        return False
    return True


def make(version, minor, sodium, workshop, toolbox, floor, into):
    """Fill a directory with pyzmq of this version for this Python; it stays empty where the index has one that fits. `sodium` gives the archive."""
    scratch = workshop.directory / "pyzmq"
    if fits(version, toolbox, scratch):
        return
    say(f"adapting pyzmq {version} to glibc {floor[0]}.{floor[1]}")
    platforms = [word for offered in OFFERED_FLOORS for word in ("--platform", f"manylinux_{offered}_{workshop.machine}")]
    toolbox.pip(["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--implementation", "cp", "--python-version", f"3.{minor}",
                 "--abi", f"cp3{minor}", "--abi", "abi3", *platforms, "--dest", scratch, f"pyzmq=={version}"],
                f"cannot download pyzmq {version}", "check that this machine reaches a package index")
    adapt(next(scratch.glob("*.whl")), sodium(), floor, workshop, into)
    shutil.rmtree(scratch)
