"""The files that a caller of the runner names: plans and pages, all below one directory, so that who may call a runner writes nowhere else."""

import errno
import os
import re
import stat

#: A plan of 100,000 minions has some 50 MB; a file without end would fill the memory of the runner.
FILE_BYTES = 256 << 20


class FileError(ValueError):
    """A file that cannot be read or written: the message says why, and what can be done."""


class Files:
    """The files of one directory. A name leads nowhere else, and no link is followed."""

    def __init__(self, place):
        self.place = os.path.abspath(place)

    def path(self, name):
        """Returns where a file is. Raises `FileError`."""
        return os.path.join(self.place, self._name(name))

    def write(self, name, text):
        """Writes a file, whole or not at all; gives its path. Raises `FileError`."""
        name = self._name(name)
        try:
            os.makedirs(self.place, mode=0o700, exist_ok=True)
            directory = self._open()
            try:
                self._replace(directory, name, text.encode("utf-8", "replace"))
            finally:
                os.close(directory)
        except OSError as error:
            raise FileError(f"cannot write {self.path(name)}: {error.strerror}") from None
        return self.path(name)

    @staticmethod
    def _replace(directory, name, content):
        # Of this process: another runner that writes the same file has another one.
        new = f".{name}.{os.getpid()}"
        try:
            os.unlink(new, dir_fd=directory)
        except FileNotFoundError:
            pass
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(new, dir_fd=directory)
            raise
        os.fsync(directory)

    def read(self, name):
        """Reads a file as text. Raises `FileError`."""
        path = self.path(name)
        try:
            directory = self._open()
            try:
                descriptor = os.open(os.path.basename(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            finally:
                os.close(directory)
            with open(descriptor, "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES:
                    raise FileError(f"cannot read {path}: it is no file of at most {FILE_BYTES} bytes")
                return file.read(FILE_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise FileError(f"cannot read {path}: it is no text") from None
        except OSError as error:
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise FileError(f"cannot read {path}: {why}") from None

    def _name(self, name):
        directory, plain = os.path.split(str(name))
        # The whole path, as `sidle.plan` prints it, is as good as the name.
        if directory in ("", self.place) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}", plain):
            return plain
        raise FileError(
            f"cannot use the file {str(name)[:200]!r}: name a file of {self.place}, without a directory, as in november.json; "
            "`sidle: {files: DIR}` in the master's configuration names another directory"
        )

    def _open(self):
        try:
            directory = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise FileError(f"cannot use {self.place}: it is a link, or no directory") from None
            raise
        found = os.fstat(directory)
        if found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022:
            return directory
        os.close(directory)
        raise FileError(f"cannot use {self.place}: another user may write there: `chown` it to the user of the master, `chmod go-w` it")
