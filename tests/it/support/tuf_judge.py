"""Judges cases with an unmodified python-tuf: for each line of JSON on standard input {"steps": [{NAME: TEXT, ...}, ...], "target": NAME} a client
that has pinned the first step's 1.root.json refreshes from each step in turn and looks the target up in the last. Prints one verdict a line."""

import json
import sys
import tempfile
from urllib.parse import unquote

from tuf.api.exceptions import DownloadError, DownloadHTTPError, RepositoryError
from tuf.ngclient import FetcherInterface, Updater

BASE = "http://127.0.0.1/metadata/"


class Memory(FetcherInterface):
    def __init__(self, files):
        self.files = files

    def _fetch(self, url):
        name = unquote(url[len(BASE):])
        if name not in self.files:
            raise DownloadHTTPError(f"no {name}", 404)
        yield self.files[name].encode()


def judge(case):
    with tempfile.TemporaryDirectory() as directory:
        for step in case["steps"]:
            bootstrap = case["steps"][0]["1.root.json"].encode()
            try:
                updater = Updater(directory, BASE, directory, BASE, fetcher=Memory(step), bootstrap=bootstrap)
                updater.refresh()
                info = updater.get_targetinfo(case["target"])
            except (RepositoryError, DownloadError, ValueError, KeyError, TypeError, AttributeError) as error:
                verdict = "refused", type(error).__name__
            else:
                verdict = ("listed " + info.hashes["sha256"], "") if info else ("none", "")
    return verdict


for line in sys.stdin:
    print("\t".join(judge(json.loads(line))), flush=True)
