

def configured(configuration):
    """Print the masters that the configuration names; null: it names none."""
    import salt.config

    defaults = dict(salt.config.DEFAULT_MINION_OPTS, master=None)
    named = salt.config.minion_config(os.path.join(configuration, "minion"), defaults=defaults)["master"]
    print(json.dumps([named] if isinstance(named, str) else named))


def make_key(opts):
    """Make the minion's key where it has none, as its start does: for the user that the minion becomes."""
    import pwd

    import salt.crypt

    keys, user = opts["pki_dir"], pwd.getpwnam(opts["user"])
    if all(os.path.isfile(os.path.join(keys, name)) for name in ("minion.pem", "minion.pub")):
        return
    if not os.path.isdir(keys):
        os.makedirs(os.path.dirname(keys), mode=0o755, exist_ok=True)
        os.mkdir(keys, 0o700)
        if os.geteuid() == 0:
            os.chown(keys, user.pw_uid, user.pw_gid)
    before = os.geteuid()
    if before == 0:
        os.seteuid(user.pw_uid)
    try:
        # Its first act is to read or make the key; no master is asked.
        salt.crypt.SAuth(dict(opts, master_uri="tcp://127.0.0.1:1", master_ip="127.0.0.1"))
    finally:
        os.seteuid(before)


def address(opts, name):
    """The URI of a master by its name; None and the reason: it has none now."""
    import salt.exceptions
    import salt.minion

    asked = dict(opts, master=name, retry_dns=0, retry_dns_count=1)
    asked.update(salt.minion.prep_ip_port(asked))
    try:
        return salt.minion.resolve_dns(asked, fallback=False)["master_uri"], ""
    except (salt.exceptions.SaltException, SystemExit, OSError) as error:
        return None, str(error)


def introduce(configuration, scratch, seconds):
    """Print {"id", "key", "masters"}: the fingerprint of the key, and what each master makes of it."""
    import salt.config
    import salt.utils.crypt

    opts = salt.config.minion_config(os.path.join(configuration, "minion"))
    make_key(opts)
    key = salt.utils.crypt.pem_finger(path=os.path.join(opts["pki_dir"], "minion.pub"), sum_type=opts["hash_type"])
    asking = prepared(configuration, scratch, int(seconds))
    told = []
    for name in [opts["master"]] if isinstance(opts["master"], str) else opts["master"]:
        uri, reason = address(opts, name)
        word, detail = ("no-answer", reason) if uri is None else safely(asking, {"name": name, "uri": uri})
        told.append({"name": name, "standing": word, "detail": detail})
    print(json.dumps({"id": opts["id"], "key": key, "masters": told}))
