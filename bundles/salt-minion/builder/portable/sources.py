"""Source archives: Debian's source packages, fetched by apt or laid here by hand, and taken only if their SHA-256 is the one written here."""

import hashlib
import os
import re
import shutil
import tarfile
from collections import namedtuple

from ..process import Refusal, run, say

# One file a line: package, version, file, SHA-256. Of several versions of a package the first that can be had is taken.
# A `.debian.tar` has Debian's fixes. scripts/portable-sources prints lines for newer versions.
TABLE = """
openssl 3.5.7-1~deb13u2 openssl_3.5.7-1~deb13u2.debian.tar.xz 593a47654ead460a3b609503733f80bef552ff0802799d3b47784faacc50809f
openssl 3.5.7-1~deb13u2 openssl_3.5.7.orig.tar.gz a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8
openssl 3.5.7-1~deb13u3 openssl_3.5.7-1~deb13u3.debian.tar.xz 0a427fdc3e773f4119a7dd5b36d1f0903a163cf4ea15d812bb823b251ff1cbc5
openssl 3.5.7-1~deb13u3 openssl_3.5.7.orig.tar.gz a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8
zlib 1:1.3.dfsg+really1.3.1-1 zlib_1.3.dfsg+really1.3.1-1.debian.tar.xz 9ed525955ce9fb0c1b39be8ff98f73450dbfc6305a9a27e6149c8972d38a0a9e
zlib 1:1.3.dfsg+really1.3.1-1 zlib_1.3.dfsg+really1.3.1.orig.tar.gz 60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb
zlib 1:1.3.dfsg+really1.3.1-1+deb13u1 zlib_1.3.dfsg+really1.3.1-1+deb13u1.debian.tar.xz 4e99de80447700cf16ecf8ed3e77fabb39f085a5fffc66713466ccf07397cc04
zlib 1:1.3.dfsg+really1.3.1-1+deb13u1 zlib_1.3.dfsg+really1.3.1.orig.tar.gz 60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb
bzip2 1.0.8-6 bzip2_1.0.8-6.debian.tar.bz2 648ed0dac9a041ba6951e0cca521628aa39947cefee78139f7b934a5dc502095
bzip2 1.0.8-6 bzip2_1.0.8.orig.tar.gz ab5a03176ee106d3f0fa90e381da478ddae405918153cca248e682cd0c4a2269
xz-utils 5.8.1-1+deb13u1 xz-utils_5.8.1-1+deb13u1.debian.tar.xz 0e48427971a9ce674ddbba26e34ac1dd009c683f3816ce17852d99dc7b0a8e46
xz-utils 5.8.1-1+deb13u1 xz-utils_5.8.1.orig.tar.xz 0b54f79df85912504de0b14aec7971e3f964491af1812d83447005807513cd9e
xz-utils 5.8.1-1+deb13u2 xz-utils_5.8.1-1+deb13u2.debian.tar.xz 7dfcff43a8035561c4860a4893f7cf9de5e977e79a90aee4d101053e21912cb0
xz-utils 5.8.1-1+deb13u2 xz-utils_5.8.1.orig.tar.xz 0b54f79df85912504de0b14aec7971e3f964491af1812d83447005807513cd9e
libffi 3.4.4-1 libffi_3.4.4-1.debian.tar.xz 161b210bfd2ada0b15b0d2a2a98ffc779cd4a68661a7fdf46f61732493db0895
libffi 3.4.4-1 libffi_3.4.4.orig.tar.gz d66c56ad259a82cf2a9dfc408b32bf5da52371500b84745f7fb8b645712df676
sqlite3 3.53.4-2 sqlite3_3.53.4-2.debian.tar.xz 43bc295284387f7b69aca9ace6c43f16e6d9472905dbd7d9ab707576db887962
sqlite3 3.53.4-2 sqlite3_3.53.4.orig.tar.xz 05366adc8ee80c6b1faa71285b49d133c2121238ca58934b077fdeb95934abd4
sqlite3 3.46.1-7+deb13u2 sqlite3_3.46.1-7+deb13u2.debian.tar.xz 59d33bc436258603702bb051d645743ab03612b82f79e7c7d638c65127c21261
sqlite3 3.46.1-7+deb13u2 sqlite3_3.46.1.orig.tar.xz d0cdd2ece271b29e7ce18095745d892517ee26d0f270065b3a25c2e9eb11639c
util-linux 2.41.5-0+deb13u1 util-linux_2.41.5-0+deb13u1.debian.tar.xz 5b327ccd22f0f4ed28a389870aa51d04ecedb8693e52a1d122850f2b3188cbf6
util-linux 2.41.5-0+deb13u1 util-linux_2.41.5.orig.tar.xz f586e35d320ff537aab3ffeca37e9ecd482ccbe013590db4429a414d8aa6a728
util-linux 2.38.1-5+deb12u3 util-linux_2.38.1-5+deb12u3.debian.tar.xz d46b85313f536fc4831a69ba3fa2c8160450b5b26c7c5dfafce4f078fe4f205c
util-linux 2.38.1-5+deb12u3 util-linux_2.38.1.orig.tar.xz 60492a19b44e6cf9a3ddff68325b333b8b52b6c59ce3ebd6a0ecaa4c5117e84f
expat 2.8.3-1~deb13u1 expat_2.8.3-1~deb13u1.debian.tar.xz 4bf2c5c2f189673c66f79f2f8a8727cd8c08636d46b648c896e1c73673562c7b
expat 2.8.3-1~deb13u1 expat_2.8.3.orig.tar.gz 533659a16e0184035a99fd8e783f1ad61a887a7bf8586a8681740b9d7ed42389
expat 2.8.2-1 expat_2.8.2-1.debian.tar.xz f2b8e4f360715497ef5d8f41d78f6ca71ee2ad5df00decc4a222ba74a4a66aa9
expat 2.8.2-1 expat_2.8.2.orig.tar.gz ca9d7c05560653cb977bfaa1ac54f717919cc0c68f6798b42fe55347c0b0ad52
libxcrypt 1:4.4.33-2 libxcrypt_4.4.33-2.debian.tar.xz 23194c9b0642533fb27fe8c33391d3fa838a55e17e5a88a419ed31548b0721c9
libxcrypt 1:4.4.33-2 libxcrypt_4.4.33.orig.tar.xz 5e2da5cb5f263e9ac4c4b3f49c75e3b8523889210f45c60bb7e97b229c75a10b
libsodium 1.0.22-2 libsodium_1.0.22-2.debian.tar.xz bbb1e5bf0df18748139e02bb84901cdb2807e042109068abf91018ab702a1daa
libsodium 1.0.22-2 libsodium_1.0.22.orig.tar.gz 5838bb0c3da6148c24ebe531d1ed1297de9a87aea77d426bcd99f289e681631c
libsodium 1.0.18-1+deb13u1 libsodium_1.0.18-1+deb13u1.debian.tar.xz 86110bbca36b16567bc35971486c4e6bd4aaf59e74310bc0faf76840ac4e2afe
libsodium 1.0.18-1+deb13u1 libsodium_1.0.18.orig.tar.gz d59323c6b712a1519a5daf710b68f5e7fde57040845ffec53850911f10a5d4f4
python3.11 3.11.2-6+deb12u8 python3.11_3.11.2-6+deb12u8.debian.tar.xz ece2d63c70ac0b7a401fbe6b51b0103be997c294a01a3865549be1862794ba97
python3.11 3.11.2-6+deb12u8 python3.11_3.11.2.orig.tar.gz 2411c74bda5bbcfcddaf4531f66d1adc73f247f529aee981b029513aefdbf849
python3.11 3.11.2-6+deb12u9 python3.11_3.11.2-6+deb12u9.debian.tar.xz c40df926f2856785028b4a40478e90382b84e2c7b2d22e3b8e49e79377586627
python3.11 3.11.2-6+deb12u9 python3.11_3.11.2.orig.tar.gz 2411c74bda5bbcfcddaf4531f66d1adc73f247f529aee981b029513aefdbf849
python3.13 3.13.15-1 python3.13_3.13.15-1.debian.tar.xz 1cf592dd51de735ff73644743e8959fb16bd50714168855509b709fdeede8342
python3.13 3.13.15-1 python3.13_3.13.15.orig.tar.xz 1e66a7945a48390ee4c2a4268a0e4185884059a13c4aab6d148aa208deea4a76
python3.13 3.13.5-2+deb13u5 python3.13_3.13.5-2+deb13u5.debian.tar.xz a51f456e654ce2c9b40cc1db8005e5041cdb0b2c3aa96ab0871c49fe95280366
python3.13 3.13.5-2+deb13u5 python3.13_3.13.5.orig.tar.xz 93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640
"""
# Suites of Debian whose lists name these files; a later version of a package often has the same archive.
SUITES = ("bookworm", "bookworm-updates", "trixie", "trixie-updates", "forky", "sid")
SECURITY_SUITES = ("bookworm-security", "trixie-security")
# Of Debian's changes those that every system wants: fixes, not Debian's own directories and names.
FIXES = {
    "openssl": r"(?!debian-targets|man-section|no-symbolic|pic\.|c_rehash|Configure-)",
    "python3.11": r"CVE-|\d{4}-3\.\d+-|shutdown-deadlock|frame_dealloc-crash|relfile-nullptr",
}
FIXES_OF_OTHERS = r"CVE-|\d{4}-"

Source = namedtuple("Source", "package version archive fixes")
File = namedtuple("File", "name sha256")


def known(package):
    """Give the versions of a package that the table has, the preferred one first."""
    versions = {}
    for line in TABLE.split("\n"):
        if line.split()[:1] == [package]:
            _, version, name, sha256 = line.split()
            versions.setdefault(version, []).append(File(name, sha256))
    return [
        Source(package, version, next(file for file in files if ".debian.tar" not in file.name),
               next((file for file in files if ".debian.tar" in file.name), None))
        for version, files in versions.items()
    ]


def upstream(source):
    """The version without Debian's part of it."""
    return re.sub(r"^\d+:|-[^-]*$", "", source.version)


class Sources:
    """The directory of the archives; apt is asked at most once."""

    def __init__(self, directory, scratch):
        self.directory = directory
        self.scratch = scratch
        self._apt = None

    def obtain(self, *packages):
        """Give a version of each package; a refusal names all files that a person may put here instead."""
        found = {package: self.first(package) for package in packages}
        missing = [known(package)[0] for package in packages if not found[package]]
        if missing:
            wanted = [f"    {file.name}  sha256 {file.sha256}" for source in missing for file in files_of(source)]
            raise Refusal("\n".join([f"cannot fetch sources: {self.apt().trouble}", *wanted]),
                          f"let this machine reach a Debian mirror (SIDLE_DEBIAN_MIRROR names one), or put these files into {self.directory}")
        return list(found.values())

    def first(self, package):
        """Give the first version of a package whose files are here or can be fetched, or None."""
        for fetch in (False, True):
            for source in known(package):
                if all(self.have(file) or (fetch and self.fetch(package, file)) for file in files_of(source)):
                    return source
        return None

    def have(self, file):
        """Whether the file is here, with the right content."""
        path = self.directory / file.name
        return path.is_file() and digest(path) == file.sha256

    def fetch(self, package, file):
        """Fetch one file; False if no mirror has it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        found = self.apt().download(package, file)
        if found:
            # By way of a name that nobody takes for the file.
            partial = self.directory / f".{file.name}.partial"
            shutil.copyfile(found, partial)
            partial.rename(self.directory / file.name)
        return bool(found)

    def apt(self):
        """The apt that is asked."""
        if self._apt is None:
            self._apt = Apt(self.scratch / "apt")
        return self._apt

    def unpack(self, source, into):
        """Unpack an archive, with Debian's fixes in it; gives its directory."""
        into.mkdir(parents=True)
        extract(self.directory / source.archive.name, into)
        top = next(entry for entry in into.iterdir() if entry.is_dir())
        if source.fixes:
            extract(self.directory / source.fixes.name, into)
            apply_fixes(into / "debian" / "patches", top, re.compile(fixes_of(source)))
        return top


def fixes_of(source):
    """The pattern of those of Debian's fixes that are applied to a source."""
    return FIXES.get(source.package, FIXES_OF_OTHERS)


def files_of(source):
    """The files of a version."""
    return [file for file in (source.archive, source.fixes) if file]


def digest(path):
    """The SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def extract(archive, into):
    """Unpack an archive whose content is known by its SHA-256."""
    with tarfile.open(archive) as members:
        members.extractall(into, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))


def apply_fixes(patches, top, fixes):
    """Apply Debian's fixes in their order; one that does not apply is a mistake in the table."""
    series = patches / "series"
    names = [line.split("#")[0].strip() for line in series.read_text(encoding="utf-8").splitlines()] if series.exists() else []
    wanted = [name for name in names if name and fixes.match(name)]
    for name in wanted:
        run(["patch", "-p1", "--forward", "--silent", "--input", patches / name], f"cannot apply {name} to {top.name}",
            "report this: the table in sources.py names a version with which it does not work", cwd=top)
    if wanted:
        say(f"applied {len(wanted)} of Debian's fixes to {top.name}")


class Apt:
    """Debian's own client with lists of its own: nothing of this machine's apt changes, and no rights are needed."""

    def __init__(self, directory):
        self.directory = directory
        self.trouble = ""
        self._versions = {}
        mirror, security = mirrors()
        if not mirror:
            self.trouble = "this machine's apt asks no Debian mirror"
            return
        for name in ("lists/partial", "cache/archives/partial", "state", "files"):
            (directory / name).mkdir(parents=True)
        lines = [f"deb-src [trusted=yes] {mirror} {suite} main" for suite in SUITES]
        lines += [f"deb-src [trusted=yes] {security} {suite} main" for suite in SECURITY_SUITES]
        (directory / "sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (directory / "apt.conf").write_text(CONFIGURATION.format(directory=directory), encoding="utf-8")
        say("asking the Debian mirror for its lists of sources")
        # A list that cannot be had is no failure to apt.
        self.trouble = self.ask("apt-get", "-qq", "update")
        if not any((directory / "lists").glob("*Sources*")):
            self.trouble = f"{mirror} does not answer"

    def ask(self, program, *words, cwd=None):
        """Run apt; gives its words if it fails, which it does as soon as one list cannot be had."""
        try:
            run([program, "-c", self.directory / "apt.conf", *words], f"{program} {words[0]}", "", cwd=cwd)
        except Refusal as refusal:
            return str(refusal).split("\n  help:")[0]
        return ""

    def versions(self, package):
        """Give the versions of a package that the lists name, each with its files."""
        if package in self._versions:
            return self._versions[package]
        try:
            told = run(["apt-cache", "-c", self.directory / "apt.conf", "showsrc", "--only-source", package], "", "")
        except Refusal:
            return {}
        found = {}
        for paragraph in told.split("\n\n"):
            files = re.findall(r"^ ([0-9a-f]{64}) \d+ (\S+)$", paragraph, re.MULTILINE)
            for version in re.findall(r"^Version: (\S+)", paragraph, re.MULTILINE):
                found[version] = {File(name, sha256) for sha256, name in files}
        self._versions[package] = found
        return found

    def download(self, package, file):
        """Fetch a file; None if no version that the lists name gives it. Lists may name files that are no longer there."""
        if not (self.directory / "apt.conf").exists():
            return None
        # apt has fetched all files of a version when it was asked for the first.
        found = self.directory / "files" / file.name
        for version in (version for version, files in self.versions(package).items() if file in files):
            if not found.exists():
                trouble = self.ask("apt-get", "-qq", "source", "--download-only", f"{package}={version}", cwd=found.parent)
                # It fails as a whole when one of the files is missing; this one may be there.
                self.trouble = trouble or self.trouble
            if found.exists() and digest(found) == file.sha256:
                say(f"fetched {file.name}")
                return found
            found.unlink(missing_ok=True)
        self.trouble = self.trouble or f"no list of the mirror names {file.name}"
        return None


CONFIGURATION = """\
Dir::State "{directory}/state";
Dir::State::Lists "{directory}/lists";
Dir::Cache "{directory}/cache";
Dir::Etc::SourceList "{directory}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Sandbox::User "root";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
"""


def mirrors():
    """The Debian mirrors for releases and for security fixes: those that SIDLE_DEBIAN_MIRROR or this machine's apt name."""
    named = os.environ.get("SIDLE_DEBIAN_MIRROR", "").rstrip("/")
    if named:
        return named, re.sub(r"/debian$", "/debian-security", named)
    try:
        told = run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], "", "")
    except Refusal:
        return None, None
    found = list(dict.fromkeys(uri.rstrip("/") for uri in told.split()))
    main = next((uri for uri in found if uri.endswith("/debian")), None)
    security = next((uri for uri in found if uri.endswith("/debian-security")), None)
    return main, security or (main and f"{main}-security")
