"""Compile the libraries that Python's modules and Salt's packages need, once for all Pythons."""

import concurrent.futures
import re
import shutil

from ..process import Refusal, say

# In the order in which they are begun; OpenSSL takes longer than all the others.
PACKAGES = ("openssl", "zlib", "bzip2", "xz-utils", "libffi", "sqlite3", "util-linux", "expat", "libxcrypt")
# A configuration of OpenSSL of the host may ask for what this OpenSSL does not have: it reads one of its own, if there is one.
OPENSSL_DIRECTORY = "/etc/sidle/openssl"
OPENSSL_OPTIONS = ("shared", "no-apps", "no-docs", "no-tests",
                   # The provider `legacy` becomes a part of libcrypto: no other file has to be found at run time.
                   "no-module")
# Where distributions keep the certificates that they trust, as one file.
CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",                 # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # RHEL 7 and later, Fedora, Amazon Linux
    "/etc/pki/tls/certs/ca-bundle.crt",                   # RHEL 6 and later
    "/var/lib/ca-certificates/ca-bundle.pem",             # SLES 12 and later, openSUSE
    "/etc/ssl/ca-bundle.pem",                             # SLES 12 and later, openSUSE
)
CERTIFICATE_DIRECTORY = "/etc/ssl/certs"
CERTIFICATE_SOURCE = """
#include <unistd.h>

/* The first of the places of the distributions that is there. */
static const char *certificates_of_host(void)
{{
    static const char *const places[] = {{ {places} }};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], R_OK) == 0)
            return places[i];
    return places[0];
}}
"""
SQLITE_OPTIONS = (
    "-DSQLITE_THREADSAFE=1", "-DSQLITE_ENABLE_COLUMN_METADATA", "-DSQLITE_ENABLE_DBSTAT_VTAB", "-DSQLITE_ENABLE_FTS3",
    "-DSQLITE_ENABLE_FTS3_PARENTHESIS", "-DSQLITE_ENABLE_FTS4", "-DSQLITE_ENABLE_FTS5", "-DSQLITE_ENABLE_MATH_FUNCTIONS",
    "-DSQLITE_ENABLE_RTREE", "-DSQLITE_ENABLE_UNLOCK_NOTIFY", "-DSQLITE_SECURE_DELETE",
)
# Its ./configure asks for more than its few files need; Python's module includes these answers, too.
EXPAT_CONFIGURATION = """\
#define BYTEORDER 1234
#define XML_CONTEXT_BYTES 1024
#define XML_DEV_URANDOM 1
#define XML_DTD 1
#define XML_GE 1
#define XML_NS 1
"""
EXPAT_FILES = ("xmlparse.c", "xmlrole.c", "xmltok.c", "random_dev_urandom.c")
# So does that of util-linux: for what all its programs need. The answers for libuuid are those that it found with this compiler.
UUID_ANSWERS = ("DECL_DIRFD", "DIRFD", "ERR", "ERRX", "ERR_H", "FSYNC", "JRAND48", "LIBPTHREAD", "LOCALE_H", "LOFF_T", "MEMPCPY", "NANOSLEEP", "NETINET_IN_H",
                "NET_IF_H", "PROGRAM_INVOCATION_SHORT_NAME", "SRANDOM", "STDLIB_H", "STRCHRNUL", "STRNDUP", "STRNLEN", "SYS_FILE_H", "SYS_IOCTL_H",
                "SYS_SOCKET_H", "SYS_SYSCALL_H", "SYS_SYSMACROS_H", "SYS_TIME_H", "SYS_UN_H", "TLS", "UNISTD_H", "USLEEP", "WARN", "WARNX")
UUID_FILES = (*(f"libuuid/src/{name}.c" for name in ("clear", "compare", "copy", "gen_uuid", "isnull", "pack", "parse", "predefined", "unpack", "unparse",
                                                     "uuid_time")), "lib/randutils.c", "lib/md5.c", "lib/sha1.c")


def compile_all(chosen, sources, workshop, prefix):
    """Fill `prefix` with include/ and lib/ of each of the chosen sources."""
    for name in ("include", "lib"):
        (prefix / name).mkdir()
    # ./configure keeps one processor busy; OpenSSL's files are there for the others.
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        running = [workers.submit(compile_one, source, sources, workshop, prefix) for source in chosen]
        for build in concurrent.futures.as_completed(running):
            if build.exception():
                for other in running:
                    other.cancel()
                raise build.exception()
    for library in sorted((prefix / "lib").iterdir()):
        if library.is_file() and not library.is_symlink():
            workshop.run(["strip", "--strip-unneeded", library], prefix)


def compile_one(source, sources, workshop, prefix):
    """Unpack and compile one of the sources, and throw away all but its headers and its library."""
    say(f"compiling {source.package} {source.version}")
    directory = workshop.directory / source.package
    top = sources.unpack(source, directory)
    RECIPES[source.package](top, workshop, prefix)
    shutil.rmtree(directory)


def openssl(top, workshop, prefix):
    """libcrypto and libssl, which trust the certificates of the host."""
    trust_host(top / "crypto" / "x509" / "x509_def.c")
    workshop.run(["perl", "Configure", f"linux-{workshop.machine}", "--prefix=/usr", "--libdir=lib",
                  f"--openssldir={OPENSSL_DIRECTORY}", *OPENSSL_OPTIONS], top)
    workshop.make(top, "build_generated")
    workshop.make(top, "libcrypto.so", "libssl.so")
    shutil.copytree(top / "include" / "openssl", prefix / "include" / "openssl", ignore=shutil.ignore_patterns("*.in"))
    put(prefix, top, "libcrypto.so.3", "libssl.so.3")


def trust_host(file):
    """Let OpenSSL look for certificates in the places of the distributions."""
    text = file.read_text(encoding="utf-8")
    places = ", ".join(f'"{place}"' for place in CERTIFICATES)
    changed, count = re.subn(r"return X509_CERT_FILE;", "return certificates_of_host();", text)
    changed, also = re.subn(r"return X509_CERT_DIR;", f'return "{CERTIFICATE_DIRECTORY}";', changed)
    begin = changed.find("\nconst char *")
    if count != 1 or also != 1 or begin < 0:
        raise Refusal(f"cannot compile openssl: {file.name} is not as it was", "report this: libraries.py must change")
    file.write_text(changed[:begin] + CERTIFICATE_SOURCE.format(places=places) + changed[begin:], encoding="utf-8")


def zlib(top, workshop, prefix):
    """libz."""
    workshop.run(["sh", "configure", "--prefix=/usr", "--shared"], top, CFLAGS=f"-O3 {workshop.c_flags}")
    name = next(line.split("=")[1].strip() for line in (top / "Makefile").read_text().splitlines() if line.startswith("SHAREDLIBV"))
    workshop.make(top, name)
    put(prefix, top, name, "zlib.h", "zconf.h", soname="libz.so.1")


def bzip2(top, workshop, prefix):
    """libbz2."""
    parts = ("blocksort", "huffman", "crctable", "randtable", "compress", "decompress", "bzlib")
    link(workshop, top, "libbz2.so.1.0", ["-D_FILE_OFFSET_BITS=64", *(f"{part}.c" for part in parts)])
    put(prefix, top, "libbz2.so.1.0", "bzlib.h")


def xz(top, workshop, prefix):
    """liblzma."""
    configure(top, workshop, "--disable-xz", "--disable-xzdec", "--disable-lzmadec", "--disable-lzmainfo", "--disable-scripts",
              "--disable-doc", "--disable-nls", "--disable-lzma-links")
    workshop.make(top / "src" / "liblzma")
    install(top / "src" / "liblzma", workshop, prefix)


def libffi(top, workshop, prefix):
    """libffi."""
    configure(top, workshop, "--disable-docs", "--disable-multi-os-directory", "--disable-exec-static-tramp")
    workshop.make(top)
    install(top, workshop, prefix)


def sqlite(top, workshop, prefix):
    """libsqlite3, from the one file that its Makefile puts together."""
    workshop.run(["sh", "configure", "--prefix=/usr", "--disable-tcl", "--disable-readline"], top)
    workshop.make(top, "sqlite3.c", jobs=1)
    link(workshop, top, "libsqlite3.so.0", [*SQLITE_OPTIONS, "sqlite3.c", "-ldl", "-lm", "-lpthread"])
    put(prefix, top, "libsqlite3.so.0", "sqlite3.h", "sqlite3ext.h")


def libuuid(top, workshop, prefix):
    """libuuid of util-linux."""
    answers = ['_PATH_LOCALSTATEDIR "/var"', *(f"HAVE_{name} 1" for name in UUID_ANSWERS)]
    (top / "config.h").write_text("".join(f"#define {answer}\n" for answer in answers), encoding="utf-8")
    link(workshop, top, "libuuid.so.1", ["-D_GNU_SOURCE", "-include", "config.h", "-Iinclude", "-Ilibuuid/src",
                                         "-Wl,--version-script=libuuid/src/libuuid.sym", *UUID_FILES, "-lpthread"])
    (prefix / "include" / "uuid").mkdir()
    put(prefix, top, "libuuid.so.1")
    shutil.copyfile(top / "libuuid" / "src" / "uuid.h", prefix / "include" / "uuid" / "uuid.h")


def expat(top, workshop, prefix):
    """libexpat."""
    library = next(path.parent for path in top.rglob("xmlparse.c"))
    (library / "expat_config.h").write_text(EXPAT_CONFIGURATION, encoding="utf-8")
    link(workshop, library, "libexpat.so.1", ["-I.", *EXPAT_FILES])
    put(prefix, library, "libexpat.so.1", "expat.h", "expat_external.h", "expat_config.h")


def libxcrypt(top, workshop, prefix):
    """libcrypt for the module crypt: hosts have it under one of two names, or not at all."""
    text = (top / "configure.ac").read_text(encoding="utf-8")
    # Its answer on Linux; the macro that asks would need a further package.
    (top / "configure.ac").write_text(text.replace("LT_SYS_SYMBOL_USCORE", "sys_symbol_underscore=no"), encoding="utf-8")
    workshop.run(["autoreconf", "--force", "--install"], top)
    configure(top, workshop, "--enable-obsolete-api=no", "--enable-hashes=all", "--disable-failure-tokens", "--disable-werror")
    workshop.make(top)
    install(top, workshop, prefix)


RECIPES = {
    "openssl": openssl, "zlib": zlib, "bzip2": bzip2, "xz-utils": xz, "libffi": libffi, "sqlite3": sqlite, "util-linux": libuuid,
    "expat": expat, "libxcrypt": libxcrypt,
}


def configure(top, workshop, *options):
    """Run a ./configure of the usual kind; the prefix is a place that no search path needs to name."""
    workshop.run(["sh", "configure", "--quiet", "--prefix=/usr", "--libdir=/usr/lib", "--disable-static", *options], top)


def install(top, workshop, prefix):
    """Let make install headers and the library, and take these alone."""
    stage = workshop.directory / f"stage-{top.name}"
    workshop.make(top, "install", f"DESTDIR={stage}", jobs=1)
    shutil.copytree(stage / "usr" / "include", prefix / "include", dirs_exist_ok=True)
    for library in sorted((stage / "usr" / "lib").glob("*.so*")):
        shutil.copyfile(library, prefix / "lib" / library.name, follow_symlinks=False)
    shutil.rmtree(stage)


def link(workshop, directory, soname, words):
    """Compile a library by one call of the compiler."""
    flags = f"-O2 -fPIC {workshop.c_flags} -shared {workshop.linker_flags} -Wl,-soname,{soname}".split()
    options = [word for word in words if not word.startswith("-l")]
    workshop.run(["gcc", *flags, "-o", soname, *options, *(word for word in words if word.startswith("-l"))], directory)


def put(prefix, directory, *names, soname=None):
    """Copy libraries and headers; a library can be linked to by its name without a version."""
    for name in names:
        if ".so" in name:
            shutil.copyfile(directory / name, prefix / "lib" / (soname or name))
            (prefix / "lib" / f"{name.split('.so')[0]}.so").symlink_to(soname or name)
        else:
            shutil.copyfile(directory / name, prefix / "include" / name)
