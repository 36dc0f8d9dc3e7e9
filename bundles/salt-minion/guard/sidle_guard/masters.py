"""Which of the configured masters a minion object is for: Salt takes the port off a name, and a list down to the one in use."""

# One of the list at a time.
ONE_OF_A_LIST = ("failover", "distributed")


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
