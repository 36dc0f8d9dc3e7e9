"""Read the files of an rpm by its format: lead, signatures, header, then a compressed cpio archive."""

import io
import os
import stat
import struct
import tarfile

MAGIC = b"\xed\xab\xee\xdb"
LEAD = 96
HEADER_MAGIC = b"\x8e\xad\xe8\x01"
# A header with more than that is none; the real ones of Salt have some MB.
LARGEST_HEADER = 256 << 20
PAYLOAD_FORMAT, PAYLOAD_COMPRESSOR = 1124, 1125
STRING = 6
COMPRESSIONS = {"": "gz", "gzip": "gz", "xz": "xz", "lzma": "lzma", "bzip2": "bz2", "zstd": "zst"}
CPIO_MAGICS = (b"070701", b"070702")
CPIO_HEADER = 110
LONGEST_NAME = 4096
LAST = "TRAILER!!!"


class Damaged(Exception):
    """The file is not what an rpm is."""


def content(package, scratch, decompress):
    """Give a plain tar file of what an rpm would install."""
    with open(package, "rb") as file:
        exactly(file, LEAD)
        header(file)
        file.seek(-file.tell() % 8, os.SEEK_CUR)
        tags = header(file)
        if tags.get(PAYLOAD_FORMAT, "cpio") != "cpio":
            raise Damaged(f"its content is no cpio archive but {tags[PAYLOAD_FORMAT]}")
        compressor = tags.get(PAYLOAD_COMPRESSOR, "")
        length = os.path.getsize(package) - file.tell()
        cpio = decompress(package, file, length, COMPRESSIONS.get(compressor, compressor), scratch / "data.cpio")
    with open(cpio, "rb") as source, tarfile.open(scratch / "data.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        convert(source, os.path.getsize(cpio), tar)
    cpio.unlink()
    return scratch / "data.tar"


def header(file):
    """Read one header; gives its strings by their tags."""
    start = exactly(file, 16)
    count, size = struct.unpack(">8xII", start)
    if start[:4] != HEADER_MAGIC or count * 16 + size > LARGEST_HEADER:
        raise Damaged("it has no header where an rpm has one")
    index, store = exactly(file, count * 16), exactly(file, size)
    strings = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIII", index):
        if kind == STRING and offset < size:
            strings[tag] = store[offset:].split(b"\0", 1)[0].decode("utf-8", "replace") if tag in (PAYLOAD_FORMAT, PAYLOAD_COMPRESSOR) else ""
    return strings


def exactly(file, length):
    """Read so many bytes; fewer are a damaged file."""
    data = file.read(length)
    if len(data) != length:
        raise Damaged("it ends too early")
    return data


def convert(source, size, tar):
    """Write the members of a cpio archive into a tar file. The names of one file come first, its content with the last of them."""
    waiting = {}
    while True:
        name, fields = cpio_header(source)
        if name == LAST:
            break
        inode, mode, links, length, device = fields[0], fields[1], fields[4], fields[6], fields[7:9]
        if source.tell() + length > size:
            raise Damaged(f"it ends in the middle of {name}")
        member = tarfile.TarInfo(name.removeprefix("./") or ".")
        member.mode = stat.S_IMODE(mode)
        if stat.S_ISREG(mode) and links > 1 and not length:
            waiting.setdefault((inode, *device), []).append(member)
            continue
        add(tar, member, mode, source, length)
        for other in waiting.pop((inode, *device), []):
            other.type, other.linkname = tarfile.LNKTYPE, member.name
            tar.addfile(other)
    for members in waiting.values():
        for member in members:
            tar.addfile(member)


def cpio_header(source):
    """Read the name and the numbers of the next member."""
    start = exactly(source, CPIO_HEADER)
    if start[:6] not in CPIO_MAGICS:
        raise Damaged("its cpio archive is damaged, or of a kind for files of more than 4 GB")
    fields = [int(start[at:at + 8], 16) for at in range(6, CPIO_HEADER, 8)]
    length = fields[11]
    if not 1 < length <= LONGEST_NAME:
        raise Damaged(f"it has a name of {length} bytes")
    name = exactly(source, length)[:-1].decode("utf-8", "surrogateescape")
    skip(source)
    return name, fields


def add(tar, member, mode, source, length):
    """Write one member with its content."""
    if stat.S_ISREG(mode):
        member.size = length
        tar.addfile(member, source)
    elif stat.S_ISLNK(mode):
        member.type, member.linkname = tarfile.SYMTYPE, exactly(source, min(length, LONGEST_NAME)).decode("utf-8", "surrogateescape")
        tar.addfile(member, io.BytesIO())
    else:
        member.type = tarfile.DIRTYPE if stat.S_ISDIR(mode) else tarfile.FIFOTYPE
        tar.addfile(member)
    skip(source)


def skip(source):
    """Go on to the next multiple of four bytes."""
    source.seek(-source.tell() % 4, os.SEEK_CUR)
