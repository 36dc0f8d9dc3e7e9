"""The job log: what each process did with each job, a line a step, for whoever looks for a job that is missing.

Off until somebody makes the file `joblog` in the gate's directory; a link there leads the lines elsewhere. Ends when the file is
removed. A line: seconds since 1970, pid, step, jid.

    heard     it came from a master for the first time
    again     it came once more, and is dropped
    claimed   it is this process's
    dropped   it is another process's
    started   Salt has a process or thread for it
    sending   main has its return, and sends it to the master
    sent      the master has acknowledged the return, or Salt has given it up
"""

import os
import time

NAME = "joblog"
# The gate's file system is a small one in memory: a log that is forgotten there must not fill it. A job leaves some 250 bytes.
MOST_BYTES = 16 * 1024 * 1024
# A jid is what a master says it is.
LONGEST_JID = 64


class JobLog:
    """Writes the lines of this process; a line that can't be written is none."""

    def __init__(self, path):
        self.path = path

    def write(self, step, jid):
        """One step of a job."""
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # Nobody wants to know.
        try:
            if os.fstat(descriptor).st_size < MOST_BYTES:
                word = "_".join(str(jid).split())[:LONGEST_JID]
                # One write to a file opened for appending: lines of two processes never mix.
                os.write(descriptor, f"{time.time():.3f} {os.getpid()} {step} {word}\n".encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(descriptor)
