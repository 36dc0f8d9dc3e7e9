"""Serves a repository on loopback and lets an unmodified python-tuf refresh from it and download targets.

Usage: tuf_client.py DIRECTORY WORK TARGET... ; DIRECTORY has metadata/ and targets/. Prints the path of each downloaded target."""

import functools
import http.server
import os
import sys
import threading

from tuf.ngclient import Updater


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def main():
    directory, work, *targets = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=directory))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for name in ("trusted", "downloads"):
        os.makedirs(os.path.join(work, name))
    with open(os.path.join(directory, "metadata", "1.root.json"), "rb") as file:
        root = file.read()
    updater = Updater(
        metadata_dir=os.path.join(work, "trusted"),
        metadata_base_url=f"{url}/metadata/",
        target_dir=os.path.join(work, "downloads"),
        target_base_url=f"{url}/targets/",
        bootstrap=root,
    )
    updater.refresh()
    for name in targets:
        info = updater.get_targetinfo(name)
        if info is None:
            sys.exit(f"{name} is not listed")
        print(updater.download_target(info))
    server.shutdown()


main()
