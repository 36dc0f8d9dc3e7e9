"""What a sign-in of this minion to each of its masters comes to: the request that the minion itself sends at every start, once, by Salt's own code.
The caller adds the call of `ask`, `introduce` or `configured`.

`ask` takes the configuration directory, an empty directory for what Salt writes, seconds for each answer, and masters in JSON: [{"name", "uri"}].
It prints a JSON list of {"name", "standing", "detail"}. It makes no key and changes none: a minion without one is not signed in. What Salt would
write beside its keys (a master's key that it has not met yet) goes into the directory given, which leads to the keys and has no copy of them.
"""

import getpass
import json
import os
import shutil


def no_keys(*_, **__):
    raise RuntimeError("the minion has no key")


def prepared(configuration, scratch, seconds):
    import salt.config

    opts = salt.config.minion_config(os.path.join(configuration, "minion"))
    keys = opts["pki_dir"]
    for name in ("minion.pem", "minion.pub"):
        if not os.path.isfile(os.path.join(keys, name)):
            no_keys()
    for name in os.listdir(keys):
        path = os.path.join(keys, name)
        if name in ("minion.pem", "minion.pub"):
            os.symlink(path, os.path.join(scratch, name))
        elif name.endswith(".pub") and os.path.isfile(path):
            shutil.copyfile(path, os.path.join(scratch, name))
    opts.update(
        pki_dir=scratch,
        cachedir=scratch,
        sock_dir=scratch,
        user=getpass.getuser(),
        auth_timeout=seconds,
        auth_tries=1,
        auth_safemode=False,
        request_channel_timeout=seconds,
        request_channel_tries=1,
        # A rejection is told at once, without Salt's pause before it ends the minion.
        rejected_retry=True,
    )
    return opts


def standing(opts, master):
    import salt.channel.client
    import salt.crypt
    import salt.exceptions
    import salt.payload

    opts = dict(opts, master=master["name"], master_uri=master["uri"])
    address = master["uri"].split("://", 1)[1]
    opts["master_ip"], opts["master_port"] = address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])
    replies = []
    auth = salt.crypt.SAuth(opts)
    if hasattr(salt.crypt.PrivateKey, "from_str"):
        # 3008 reads its keys through a cache that follows no link.
        with open(auth.rsa_path, encoding="ascii") as pem:
            auth._private_key = salt.crypt.PrivateKey.from_str(pem.read(), None)
    judge = auth.handle_signin_response

    def seen(sent, reply):
        replies.append(reply)
        return judge(sent, reply)

    auth.handle_signin_response = seen
    try:
        channel = salt.channel.client.ReqChannel.factory(opts, crypt="clear")
        try:
            came_to = auth.sign_in(timeout=opts["auth_timeout"], safe=False, tries=1, channel=channel)
        finally:
            channel.close()
    except (salt.exceptions.SaltClientError, salt.exceptions.SaltReqTimeoutError) as error:
        if not replies:
            return "no-answer", str(error)
        # A key that is not the known one, or a signature that is not of it.
        changed = "Invalid master key" in str(error) or "Invalid signature" in str(error)
        return ("key-changed" if changed else "unknown"), str(error)
    except SystemExit as error:
        # `master_finger` in the configuration names another key.
        return ("key-changed" if error.code == 42 else "unknown"), "Salt would end with exit code %s" % error.code
    if isinstance(came_to, dict):
        return "accepted", ""
    if came_to == "full":
        return "full", ""
    if came_to == "retry" and replies:
        load = replies[-1]["load"]
        load = salt.payload.loads(load) if isinstance(load, bytes) else load
        return ("pending" if load.get("ret") else "denied"), ""
    return "unknown", "the answer was %r" % (came_to,)


def safely(opts, master):
    try:
        return standing(opts, master)
    except Exception as error:  # noqa: BLE001
        return "unknown", "%s: %s" % (type(error).__name__, error)


def ask(configuration, scratch, seconds, masters):
    import salt.crypt

    salt.crypt.gen_keys = no_keys
    opts = prepared(configuration, scratch, int(seconds))
    told = []
    for master in json.loads(masters):
        word, detail = safely(opts, master)
        told.append({"name": master["name"], "standing": word, "detail": detail})
    print(json.dumps(told))


def configured(configuration):
    """Print {"id", "masters", "pin"} as the configuration has them; null: it names none, and pins no key."""
    import salt.config

    defaults = dict(salt.config.DEFAULT_MINION_OPTS, master=None)
    opts = salt.config.minion_config(os.path.join(configuration, "minion"), defaults=defaults)
    named = opts["master"]
    named = [named] if isinstance(named, str) else named
    print(json.dumps({"id": opts["id"], "masters": named, "pin": opts.get("master_finger") or None}))


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
    """
    Print {"id", "key", "whole", "masters"}: the fingerprint of the key, the other one that masters of 3008 print (of the whole file as a minion sends it:
    salt#69970), and what each master makes of it.
    """
    import hashlib

    import salt.config
    import salt.utils.crypt

    opts = salt.config.minion_config(os.path.join(configuration, "minion"))
    make_key(opts)
    key = salt.utils.crypt.pem_finger(path=os.path.join(opts["pki_dir"], "minion.pub"), sum_type="sha256")
    with open(os.path.join(opts["pki_dir"], "minion.pub"), encoding="ascii") as pem:
        whole = hashlib.sha256("\n".join(pem.read().strip().splitlines()).encode()).hexdigest()
    asking = prepared(configuration, scratch, int(seconds))
    told = []
    for name in [opts["master"]] if isinstance(opts["master"], str) else opts["master"]:
        uri, reason = address(opts, name)
        word, detail = ("no-answer", reason) if uri is None else safely(asking, {"name": name, "uri": uri})
        told.append({"name": name, "standing": word, "detail": detail})
    whole = ":".join(whole[at : at + 2] for at in range(0, len(whole), 2))
    print(json.dumps({"id": opts["id"], "key": key, "whole": whole, "masters": told}))
