"""The count of uses on disk: the file that is kept, and the log whose lines are folded into it."""

import json
import os
import time

SCHEMA = 1
SECONDS_PER_DAY = 86400
# A day that is older than these is forgotten.
DAYS = 90
# (name, day) pairs in the file, some 25 bytes each: the oldest day goes first. A minion that calls 200 functions a day has 18,000 in 90 days.
MOST_PAIRS = 20_000
# Lines that nobody folds must not fill the gate's file system, which lies in memory.
MOST_LOG_BYTES = 2 << 20


def today():
    """The day in UTC, counted from 1970."""
    return int(time.time() // SECONDS_PER_DAY)


class UsesLog:
    """The lines of processes whose count is not folded yet."""

    def __init__(self, path):
        self.path = path
        self.folding = f"{path}.folding"

    def append(self, counted):
        """Append one line; without room there is none."""
        line = json.dumps([today(), [[kind, name, number] for (kind, name), number in counted.items()]], separators=(",", ":"))
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            if os.fstat(descriptor).st_size < MOST_LOG_BYTES:
                # One write to a file opened for appending: lines of two processes never mix.
                os.write(descriptor, line.encode() + b"\n")
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def taken(self):
        """Give the lines that were set aside in the last round, as (day, kind, name, number), and set the present ones aside: whoever has just
        opened the file has written to it by the next round."""
        found = []
        try:
            with open(self.folding, encoding="utf-8", errors="replace") as file:
                for line in file:
                    found.extend(_parsed(line))
            os.unlink(self.folding)
        except FileNotFoundError:
            pass
        try:
            os.rename(self.path, self.folding)
        except FileNotFoundError:
            pass
        return found


def _parsed(line):
    """Read a line of the log; one that was cut off is none."""
    try:
        day, counted = json.loads(line)
        return [(int(day), str(kind), str(name), int(number)) for kind, name, number in counted]
    except (ValueError, TypeError):
        return []


class Count:
    """The count in the file: {kind: {name: {day: number}}}, and the days on which a guard counted."""

    def __init__(self):
        self.days = set()
        self.uses = {}
        # A day with more names than the count holds: what is not in it may have been called all the same.
        self.cut = None

    @classmethod
    def read(cls, path):
        """Read it; an absent file is an empty count. Raises ValueError for any other."""
        count = cls()
        try:
            with open(path, encoding="utf-8") as file:
                saved = json.load(file)
            if saved["schema"] != SCHEMA:
                raise ValueError(f"it has schema {saved['schema']}, this guard reads {SCHEMA}")
            count.days = set(map(int, saved["days"]))
            count.cut = saved.get("cut")
            for kind, names in saved["uses"].items():
                count.uses[kind] = {name: {int(day): int(number) for day, number in days} for name, days in names.items()}
        except FileNotFoundError:
            return count
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no count of uses: {error!r}") from error
        return count

    def add(self, day, kind, name, number):
        """Add calls; gives whether this name is new on this day."""
        days = self.uses.setdefault(kind, {}).setdefault(name, {})
        is_new = day not in days
        days[day] = days.get(day, 0) + number
        return is_new

    def bound(self):
        """Forget the oldest days, and more of them while there is too much. By their number: a clock that was wrong for once must not empty the count."""
        pairs = {}
        for names in self.uses.values():
            for days in names.values():
                for day in days:
                    pairs[day] = pairs.get(day, 0) + 1
        kept = set(sorted(self.days | set(pairs))[-DAYS:])
        total = sum(pairs.get(day, 0) for day in kept)
        for day in sorted(kept):
            if total <= MOST_PAIRS:
                break
            if day == max(kept):
                self.cut = day
                break
            total -= pairs.get(day, 0)
            kept.discard(day)
        self.days &= kept
        if self.cut is not None and self.cut not in kept:
            self.cut = None
        room = MOST_PAIRS
        for kind, names in list(self.uses.items()):
            for name, days in list(names.items()):
                left = {day: number for day, number in days.items() if day in kept}
                room -= len(left)
                if left and room >= 0:
                    names[name] = left
                else:
                    del names[name]
            if not names:
                del self.uses[kind]

    def text(self):
        """Give the file's content."""
        uses = {
            kind: {name: sorted(map(list, days.items())) for name, days in sorted(names.items())} for kind, names in sorted(self.uses.items())
        }
        return json.dumps({"schema": SCHEMA, "days": sorted(self.days), "cut": self.cut, "uses": uses}, separators=(",", ":")) + "\n"
