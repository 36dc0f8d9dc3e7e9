"""Which of the configured masters a minion object is for: Salt takes the port off a name, and a list down to the one in use."""

from .options import configured, is_one_of_a_list  # noqa: F401


def configured_name(opts, minion_opts):
    """The master of a minion object as the configuration names it; None: it is not known."""
    names = configured(opts)
    if len(names) == 1:
        return names[0]
    host, port = str(minion_opts.get("master")), str(minion_opts.get("master_port"))
    for name in names:
        named, _, its_port = name.rpartition(":")
        if name == host or (named.strip("[]") == host.strip("[]") and its_port == port):
            return name
    return None
