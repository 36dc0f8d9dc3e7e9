"""What the runner needs of Salt, for tests without Salt: names that exist, and a job cache whose files have Python's values as text."""

import ast
import contextlib
import hashlib
import os
import sys
import types


class SaltException(Exception):
    """As Salt's."""


def _jid_dir(jid, job_dir, hash_type):
    digest = getattr(hashlib, hash_type)(jid.encode()).hexdigest()
    return os.path.join(job_dir, digest[:2], digest[2:])


def _loads(data):
    try:
        return ast.literal_eval(data.decode())
    except (SyntaxError, ValueError) as error:
        raise SaltException(str(error)) from None


class NoCache:
    """A cache of grains that has nothing."""

    def list(self, _bank):
        return []

    def fetch(self, _bank, _key):
        return {}

    def updated(self, _bank, _key):
        return None


MODULES = {
    "salt": {},
    "salt.cache": {"factory": lambda _opts: NoCache()},
    "salt.client": {"LocalClient": None},
    "salt.exceptions": dict.fromkeys(("SaltException", "SaltCacheError", "SaltClientError", "SaltReqTimeoutError"), SaltException),
    "salt.fileclient": {},
    "salt.key": {},
    "salt.minion": {},
    "salt.payload": {"loads": _loads},
    "salt.utils": {},
    "salt.utils.event": {"get_event": None},
    "salt.utils.jid": {"jid_dir": _jid_dir},
    "salt.utils.minions": {"CkMinions": None},
    "salt.utils.network": {"ip_addrs": lambda **_: ["127.0.0.1"], "ip_addrs6": lambda **_: []},
    "salt.utils.stringutils": {},
    "salt.utils.url": {},
    "salt.version": {"__version__": "3008.5"},
}


@contextlib.contextmanager
def importable():
    """Salt can be imported, and is gone afterwards: other tests run without it."""
    before = {name: sys.modules.get(name) for name in MODULES}
    for name, values in MODULES.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
