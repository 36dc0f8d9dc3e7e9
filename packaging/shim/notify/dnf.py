"""A plugin of DNF 4, by the Python that DNF itself runs with."""

import subprocess

import dnf


class Notify(dnf.Plugin):
    """Tells the minion of a transaction that somebody else made."""

    name = "@PREFIX@dnfnotify"

    def __init__(self, base, cli):
        super().__init__(base, cli)
        self.here = base.conf.installroot == "/"

    def transaction(self):
        if self.here:
            try:
                subprocess.call(["@NOTIFY@"])
            except OSError:
                pass
