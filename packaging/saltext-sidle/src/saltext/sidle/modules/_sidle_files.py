"""
The files of a repository on the file server, through a pipe: sidle asks for parts of files, and this module takes them from the master (or from
``file_roots``, where the minion has no master). A part of the execution module; Salt loads no module whose name begins with ``_``.
"""

import json
import re
import subprocess
import threading
import time

import salt.exceptions
import salt.fileclient
import salt.utils.stringutils
import salt.utils.url

#: What stands for the file server on sidle's command line: it asks this module for the files.
STDIO = "stdio:"

#: The reason of sidle's error if this module was a repository that failed, and the pipe's name in the message: sidle knows this module by its pipe alone.
REASON, PIPE = "standard-input", "standard input: "

#: Least rate, bytes a second: at less the chunks of the file server (256 KiB) take longer than sidle waits.
RATE_MINIMUM = 16 << 10

#: How often the master is asked for a chunk, and how many seconds it has for each answer: sidle waits 30 s for the two of them.
TRIES, TRY_SECONDS = 2, 12

#: Most bytes of sidle's messages that are kept.
MESSAGES_MAXIMUM = 64 << 10


def rate_of(text):
    """Returns the bytes a second of ``2M``, ``500K`` or a number; None: no limit."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", str(text).strip())
    rate = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not rate:
        raise ValueError(f"cannot use the rate {text}: it is no number of bytes a second, as 2M or 500K")
    return max(rate, RATE_MINIMUM)


def places(repository, rate, default_rate):
    """Returns the repositories as sidle's command line names them, the one of them that is on the file server, and its rate."""
    named = [repository] if isinstance(repository, str) else list(repository or [])
    served = [place for place in named if place.startswith("salt://")]
    if len(served) > 1:
        raise ValueError(f"cannot use {' and '.join(served)}: only one repository may be on the file server")
    if rate is not None and not served:
        raise ValueError("cannot use rate: no repository is on the file server (salt://)")
    rate = rate_of(default_rate if rate is None else rate) if served else None
    return [STDIO if place in served else place for place in named], next(iter(served), None), rate


def explained(error, served):
    """Returns an error of sidle in the words of whom this repository was named by; other errors stay as they are."""
    if error.get("reason") != REASON:
        return error
    hint = f"`salt-run fileserver.file_list` on the master has to list metadata/timestamp.json below {served}; fetched parts are kept"
    return {**error, "message": error["message"].replace(PIPE, f"{served}: ", 1), "hint": hint}


class Files:
    """
    Files below a directory of the file server, chunk by chunk as the server gives them. Nothing is written to the minion's cache. Works for the
    master and for ``file_client: local``, and for each kind of file server.
    """

    def __init__(self, place, opts):
        path, saltenv = salt.utils.url.parse(place)
        self.directory = path.strip("/")
        self.saltenv = saltenv or opts.get("saltenv") or "base"
        self.client = salt.fileclient.get_file_client(opts)

    def chunk(self, name, begin):
        """Returns the bytes from ``begin`` on, as many as the server gives at once; None without such a file."""
        path = f"{self.directory}/{name}".lstrip("/")
        load = {"cmd": "_serve_file", "path": path, "saltenv": self.saltenv, "loc": begin}
        answer = self.client.channel.send(load, tries=TRIES, timeout=TRY_SECONDS, raw=True)
        if not isinstance(answer, dict):
            raise salt.exceptions.SaltClientError(f"the file server refuses {path}")
        answer = salt.fileclient.decode_dict_keys_to_str(answer)
        # An empty file, and the end of a file, still have a name. gitfs gives text as text.
        return salt.utils.stringutils.to_bytes(answer["data"] or b"") if answer.get("dest") else None

    def close(self):
        destroy = getattr(self.client, "destroy", None)
        if destroy:
            destroy()


def _answer(request, files, rate, pipe):
    """Answers one request of sidle (docs/formats.md: a repository over standard input and output)."""
    begin = request.get("from", 0)
    try:
        data = files.chunk(request["ask"], begin)
    except (salt.exceptions.SaltException, OSError) as error:
        pipe.write(json.dumps({"error": str(error) or type(error).__name__}).encode() + b"\n")
        return
    if data is None:
        pipe.write(b'{"absent":true}\n')
        return
    wanted = data[: request.get("to", request.get("maximum", 0)) - begin]
    pipe.write(json.dumps({"bytes": len(wanted)}).encode() + b"\n")
    # A second's worth at a time: a slow rate must not look like silence.
    step = rate or len(wanted) or 1
    for at in range(0, len(wanted), step):
        piece = wanted[at : at + step]
        pipe.write(piece)
        pipe.flush()
        if rate:
            time.sleep(len(piece) / rate)
    if rate:
        # The master has sent these, too.
        time.sleep((len(data) - len(wanted)) / rate)


def _collect(stream, into):
    for line in stream:
        if sum(map(len, into)) < MESSAGES_MAXIMUM:
            into.append(line)


def carry(command, place, rate, opts):
    """Runs sidle, and answers its requests from the file server; returns what ``cmd.run_all`` returns."""
    said, messages = b"", []
    files = Files(place, opts)
    # The pipe's end is its leash: if this job is killed, standard input ends, and sidle with it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reader = threading.Thread(target=_collect, args=(process.stderr, messages), daemon=True)
    reader.start()
    try:
        for line in process.stdout:
            request = json.loads(line) if line.startswith(b"{") else {}
            if "ask" not in request:
                said = line
                continue
            try:
                _answer(request, files, rate, process.stdin)
                process.stdin.flush()
            except BrokenPipeError:
                # It needs no more; its last line says why.
                continue
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        files.close()
        reader.join()
        process.stdout.close()
        process.stderr.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
    code = process.returncode
    return {"stdout": said.decode(), "stderr": b"".join(messages).decode(errors="replace"), "retcode": code}
