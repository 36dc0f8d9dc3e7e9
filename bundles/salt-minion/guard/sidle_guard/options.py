"""The options of a minion that sidle needs, as Salt has derived them. The guard reports those that its process runs with; sidle asks a release's Salt
by the same code."""

import ipaddress

# One of the list at a time.
ONE_OF_A_LIST = ("failover", "distributed")
# What Salt takes for "not set" in publish_port, and its default for master_port.
REQUEST_PORT = 4506
PATHS = ("cachedir", "extension_modules", "pki_dir", "sock_dir", "pidfile", "log_file")


def configured(opts):
    """The masters as the configuration names them."""
    masters = opts.get("master")
    if opts.get("master_type") == "disable" or not masters:
        return []
    if isinstance(masters, str) and is_one_of_a_list(opts):
        masters = [name.strip() for name in masters.split(",")]
    return [str(name) for name in (masters if isinstance(masters, list) else [masters])]


def is_one_of_a_list(opts):
    """Whether the minion listens to one of them only."""
    return opts.get("master_type") in ONE_OF_A_LIST


class Described:
    """The description of the options that this process runs with, at the default paths: the slot's own paths are the guard's doing."""

    def __init__(self):
        self._opts = self._described = None

    def of(self, opts, paths):
        """Give it; None: it cannot be given. Salt may begin again with other options in the same process."""
        if opts is not self._opts:
            self._opts, own = opts, {"sock_dir": paths.default_sock_dir, "pidfile": paths.default_pidfile}
            try:
                self._described = described(opts, **{name: path for name, path in own.items() if path})
            except Exception:  # noqa: BLE001 - sidle asks the release then.
                self._described = None
        return self._described


def described(opts, **instead):
    """Give the needed options; `instead`: values that replace loaded ones."""
    found = {name: instead.get(name, opts.get(name)) for name in PATHS}
    described = {name: None if path is None else str(path) for name, path in found.items()}
    user = opts.get("user")
    described.update(
        id=str(opts.get("id")), user=str(user) if user else None, transport=str(opts.get("transport") or "zeromq"),
        # Salt only warns of a wrong type, and goes by Python's truth.
        multiprocessing=bool(opts.get("multiprocessing", True)), ipv6=bool(opts.get("ipv6")))
    try:
        described.update(_masters(opts), masters_unknown=None)
    except (ImportError, TypeError, ValueError) as error:
        described.update(masters=[], need="all", masters_unknown=" ".join(str(error).split()) or type(error).__name__)
    return described


def _masters(opts):
    """The masters with their ports, and whether one of them is enough."""
    kind = opts.get("master_type") or "str"
    if kind == "disable":
        return {"masters": [], "need": "none"}
    if kind == "func":
        raise ValueError("master_type is func: which master a function of the minion names can't be known from outside; name the masters "
                         "in `master`")
    if kind != "str" and kind not in ONE_OF_A_LIST:
        raise ValueError(f'master_type is "{kind}", which Salt does not know')
    port, publish = _port(opts, "master_port"), _port(opts, "publish_port")
    masters = []
    for name in configured(opts):
        host, own = _host_and_port(opts, name)
        master = {"name": name, "host": host, "request_port": own or port, "publish_port": None if publish == REQUEST_PORT else publish}
        if master not in masters:
            masters.append(master)
    if not masters:
        raise ValueError("master names no master: set it, or master_type: disable")
    return {"masters": masters, "need": "any" if kind in ONE_OF_A_LIST else "all"}


def _host_and_port(opts, name):
    if name.startswith("sdb://"):
        raise ValueError(f"master is {name}: only the running minion looks that up")
    if opts.get("master_uri_format") == "ip_only":
        return str(ipaddress.ip_address(name)), None
    from salt.utils.network import parse_host_port

    host, port = parse_host_port(name)
    return str(host), port


def _port(opts, name):
    value = opts.get(name, REQUEST_PORT)
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = 0
    if not 0 < port < 65536:
        raise ValueError(f'{name} is "{value}", not a port')
    return port
