"""How many jobs a master published while minions could not hear them, in switches with a downtime."""

import time

from . import silent

#: A job that was published so shortly before may have been on its way, seconds.
ON_ITS_WAY = 5

#: The job cache is searched for so long: `sidle.show` must not wait for it.
SECONDS_MAX = 10


def counted(opts, hosts):
    """
    Returns for each minion of a rollout whose switch had a downtime how many jobs that were published meanwhile for it have no return of it, if there are any,
    and what lists them. `hosts`: those of the rollout's record.
    """
    down, counts, is_whole = numbers(opts, hosts)
    return {minion: _words(minion, down[minion], count, is_whole) for minion, count in sorted(counts.items()) if count or not is_whole}


def numbers(opts, hosts):
    """
    Returns the downtimes of these minions, how many jobs each missed meanwhile, and whether the whole job cache was looked at: if not, there may be more.
    """
    down = {minion: host["downtime"] for minion, host in hosts.items() if host.get("downtime")}
    if not down:
        return {}, {}, True
    counts, until, is_whole = dict.fromkeys(down, 0), time.monotonic() + SECONDS_MAX, True
    for published, minions in silent.Master(opts).unreturned_since(min(each["begun"] for each in down.values()) - ON_ITS_WAY, set(down)):
        for minion in minions:
            counts[minion] += down[minion]["begun"] - ON_ITS_WAY <= published <= down[minion]["ended"]
        if time.monotonic() > until:
            is_whole = False
            break
    return down, counts, is_whole


def _words(minion, down, count, is_whole):
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(down["begun"] - ON_ITS_WAY))
    jobs = "1 job was" if count == 1 else f"{count} jobs were"
    told = f"{down['seconds']:.1f} s of downtime: {'' if is_whole else 'at least '}{jobs} published meanwhile, and did not return"
    return f"{told}: `salt-run sidle.missed {minion} since={since}`"
