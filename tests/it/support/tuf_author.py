"""Writes a TUF repository with python-tuf, in forms that sidle itself never writes: targets in sub-directories, SHA-512 alone, keyids that are
no digests, ECDSA beside Ed25519, a delegated role with a strange name, and hash bins (succinct roles); three versions of the root.

Usage: tuf_author.py DIRECTORY"""

import datetime
import hashlib
import os
import sys
from urllib.parse import quote

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
)

DIRECTORY = sys.argv[1]
EXPIRES = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(days=30)


def opaque(signer, name):
    """The same key under a name that nobody can compute from it."""
    signer.public_key.keyid = name
    return signer


def content(name):
    return f"content of {name}\n".encode()


def target(name):
    data = content(name)
    digest = hashlib.sha512(data).hexdigest()
    head, _, base = name.rpartition("/")
    path = os.path.join(DIRECTORY, "targets", head, f"{digest}.{base}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return TargetFile(len(data), {"sha512": digest}, name)


def write(name, metadata, *signers):
    metadata.signatures.clear()
    for signer in signers:
        metadata.sign(signer, append=True)
    data = metadata.to_bytes()
    with open(os.path.join(DIRECTORY, "metadata", quote(name, safe="")), "wb") as file:
        file.write(data)
    return MetaFile(metadata.signed.version, len(data), {"sha512": hashlib.sha512(data).hexdigest()})


def main():
    os.makedirs(os.path.join(DIRECTORY, "metadata"))
    roots = [opaque(CryptoSigner.generate_ed25519(), f"root key {n}") for n in range(3)]
    top = opaque(CryptoSigner.generate_ecdsa(), "the-targets-key")
    online = opaque(CryptoSigner.generate_ed25519(), "0")
    team = [opaque(CryptoSigner.generate_ed25519(), f"team/{n}") for n in range(2)]
    bins = opaque(CryptoSigner.generate_ed25519(), "bins")

    root = Root(expires=EXPIRES, consistent_snapshot=True)
    for signer in roots[:2]:
        root.add_key(signer.public_key, "root")
    root.roles["root"].threshold = 2
    root.add_key(top.public_key, "targets")
    root.add_key(online.public_key, "snapshot")
    root.add_key(online.public_key, "timestamp")
    write("1.root.json", Metadata(root), *roots[:2])
    root.version = 2
    root.revoke_key("root key 1", "root")
    root.add_key(roots[2].public_key, "root")
    write("2.root.json", Metadata(root), *roots)
    root.version = 3
    write("3.root.json", Metadata(root), roots[0], roots[2])

    meta = {}
    team_role = "team/\u00e4..x"
    listed = Targets(expires=EXPIRES)
    listed.targets["team/a/one.txt"] = target("team/a/one.txt")
    meta[f"{team_role}.json"] = write(f"1.{team_role}.json", Metadata(listed), *team)

    succinct = SuccinctRoles([bins.public_key.keyid], 1, 4, "bin")
    names = [f"bins/{n}.txt" for n in range(8)]
    for role in succinct.get_roles():
        listed = Targets(expires=EXPIRES)
        for name in names:
            if succinct.get_role_for_target(name) == role:
                listed.targets[name] = target(name)
        meta[f"{role}.json"] = write(f"1.{role}.json", Metadata(listed), bins)
    middle = Targets(expires=EXPIRES, delegations=Delegations({bins.public_key.keyid: bins.public_key}, succinct_roles=succinct))
    meta["middle.json"] = write("1.middle.json", Metadata(middle), bins)

    keys = {signer.public_key.keyid: signer.public_key for signer in [*team, bins]}
    roles = {
        team_role: DelegatedRole(team_role, list(keys)[:2], 2, False, paths=["team/*/*"]),
        "middle": DelegatedRole("middle", ["bins"], 1, True, paths=["bins/*"]),
    }
    listed = Targets(expires=EXPIRES, delegations=Delegations(keys, roles=roles))
    for name in ("top.txt", "sub/dir/deep.txt"):
        listed.targets[name] = target(name)
    meta["targets.json"] = write("1.targets.json", Metadata(listed), top)
    snapshot = write("1.snapshot.json", Metadata(Snapshot(expires=EXPIRES, meta=meta)), online)
    write("timestamp.json", Metadata(Timestamp(expires=EXPIRES, snapshot_meta=snapshot)), online)


main()
