"""What a sign-in of this minion to each of its masters comes to: the request that the minion itself sends at every start, once, by Salt's own code.

`ask` takes the configuration directory, an empty directory for what Salt writes, seconds for each answer, and masters in JSON: [{"name", "uri"}].
It prints a JSON list of {"name", "standing", "detail"}. It makes no key and changes none: a minion without one is not signed in. What Salt would
write beside its keys (a master's key that it has not met yet) goes into the directory given, which leads to the keys and has no copy of them.
"""

import getpass
import json
import os
import shutil
import sys


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
