"""What this master knows of a minion and of a job, and what the minion itself says."""

import heapq
import os
import re
import socket
import time

from saltext.sidle.fleet import answers, values
from saltext.sidle.fleet import evidence as facts

#: So many of the newest jobs are searched for one that lacks the minion's return: each one costs a look at two files.
JOBS_SEARCHED = 20_000

#: So much of the end of the master's log is read.
LOG_BYTES = 4 << 20

#: A return is shown as far as this.
SHOWN_CHARACTERS = 300

#: The functions of a minion that evaluate a target, by the type of the target.
MATCHERS = {
    "glob": "match.glob", "pcre": "match.pcre", "list": "match.list", "grain": "match.grain", "grain_pcre": "match.grain_pcre",
    "pillar": "match.pillar", "pillar_pcre": "match.pillar_pcre", "ipcidr": "match.ipcidr", "compound": "match.compound", "data": "match.data",
}  # fmt: skip

#: Asked by every command that waits: nobody misses its returns.
OWN_QUESTION = "saltutil.find_job"
#: The functions of this extension: a rollout asks and orders by them, and knows itself who did not answer. An old order must not be given again.
OWN_PREFIX = "sidle."

#: What refusals look like in the master's log: 3006.30, 3007.17, 3008.5.
REFUSALS = {
    facts.TOO_OLD: "Rejected authentication attempt",
    facts.TOO_MANY: "Too many minions connected",
    facts.EXPIRED: "with expired ttl",
    facts.UNSIGNED: "signature",
    facts.OTHER_KEY: "did not match|token did not validate|key could not be read",
}

#: Each host has these addresses.
LOOPBACK = {"127.0.0.1", "::1"}

#: The lists of `salt-key -L`.
KEYS = {"minions": "accepted", "minions_pre": "pending", "minions_rejected": "rejected", "minions_denied": "denied"}


def collect(opts, minion, jid=None, seconds=15, rollouts=()):
    """
    Collects the evidence. Without a job: the newest one that the minion should have answered, and did not. Asks the minion, if its key is accepted and its return
    is not there; waits `seconds` for the answer. `rollouts`: the records of this master's rollouts.
    """
    import salt.minion
    import salt.version

    found = facts.Evidence(minion, time.time(), master_version=salt.version.__version__)
    found.minimum_auth, found.max_minions = opts.get("minimum_auth_version", 0), opts.get("max_minions", 0)
    found.patience = opts.get("timeout", 5) + opts.get("gather_job_timeout", 10)
    found.keep_seconds = keep_seconds(opts)
    found.master_since = started(opts.get("pidfile"))
    _keys(opts, found)
    own = salt.minion.MasterMinion(opts, states=False, rend=False)
    try:
        found.jid = jid or _newest_without_return(opts, own.returners, minion)
        if found.jid:
            _job(opts, own.returners, found)
        _seen(opts, found)
        if "accepted" in found.keys and not found.ret:
            _ask(opts, found, seconds)
            # It may have returned meanwhile.
            if found.jid and found.answers:
                _job(opts, own.returners, found)
    finally:
        # 3006 has nothing to close here.
        getattr(own, "destroy", lambda: None)()
    found.log = refusals(opts, {minion}).get(minion, [])
    found.rollouts = [rollout_line(record, minion) for record in rollouts if minion in record["hosts"]]
    return found


def _keys(opts, found):
    import salt.key

    lists = salt.key.Key(opts).list_keys()
    found.keys = frozenset(state for name, state in KEYS.items() if found.minion in lists.get(name, ()))
    found.accepted_since = accepted(opts, found.minion) if "accepted" in found.keys else None


def modified(path):
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def accepted(opts, minion):
    """
    Returns when the key of a minion was accepted; None: there is no accepted key. Salt before 3008 renames the file of a pending key, which keeps the time of
    its content.
    """
    try:
        return os.stat(os.path.join(opts["pki_dir"], "minions", minion)).st_ctime
    except OSError:
        return None


def started(pidfile):
    """Returns when the process of a pid file was started."""
    try:
        with open(pidfile, encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="ascii") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    except (OSError, TypeError, ValueError, IndexError, StopIteration):
        return None
    return boot + ticks / os.sysconf("SC_CLK_TCK")


# --- the job cache -------------------------------------------------------------------------------------------------------


def keep_seconds(opts):
    """Returns for how long the master keeps jobs."""
    # Before 3006 the setting was in hours.
    return opts.get("keep_jobs_seconds", opts.get("keep_jobs", 24) * 3600)


def is_own_question(load):
    """Returns whether nobody misses the returns of a job."""
    return any(name == OWN_QUESTION or name.startswith(OWN_PREFIX) for name in load["fun"].split(", "))


def cache_name(opts):
    return opts.get("ext_job_cache") or opts.get("master_job_cache", "local_cache")


def _job(opts, cache, found):
    import salt.utils.jid
    import salt.utils.minions

    name = cache_name(opts)
    load = stored_job(cache, name, found.jid)
    returns = cache[f"{name}.get_jid"](found.jid) or {}
    if not load:
        return
    directory = salt.utils.jid.jid_dir(found.jid, os.path.join(opts["cachedir"], "jobs"), opts["hash_type"])
    kept = directory if name == "local_cache" else os.devnull
    published = facts.time_of(found.jid) or modified(os.path.join(kept, ".load.p")) or found.now
    tgt, kind, expected = load["tgt"], load["tgt_type"], load["Minions"]
    found.job = facts.Job(load["fun"], tgt, kind, load["user"], published, expected, sorted(returns))
    if found.minion in returns:
        found.ret = _return(returns[found.minion], modified(os.path.join(kept, found.minion, "return.p")))
    elif expected is not None and found.minion not in expected:
        matched = salt.utils.minions.CkMinions(opts).check_minions(tgt.split(",") if kind == "list" else tgt, kind)
        found.matched_now = found.minion in matched["minions"]


def stored_job(cache, name, jid):
    """Returns a job of the job cache; None: there is none, or what is there is no job."""
    return _readable(answers.taken(answers.load, cache[f"{name}.get_load"](jid)))


def _readable(answer):
    return None if isinstance(answer, answers.Unreadable) else answer


def _return(told, at):
    said = told.get("return") if isinstance(told, dict) else told
    failed = isinstance(told, dict) and (bool(told.get("retcode")) or told.get("success") is False)
    return facts.Return(at, failed, values.shown(said))


def _newest_without_return(opts, cache, minion):
    name = cache_name(opts)
    for jid, has_returned in _local_jobs(opts, minion) if name == "local_cache" else _jobs(cache, name, minion):
        if has_returned:
            continue
        load = stored_job(cache, name, jid)
        if load and minion in (load["Minions"] or ()) and not is_own_question(load):
            return jid
    return None


def _local_jobs(opts, minion):
    """Returns the jobs of the local job cache, the newest first: id, and whether the minion has returned."""
    for path in newest_jobs(os.path.join(opts["cachedir"], "jobs")):
        try:
            with open(os.path.join(path, "jid"), encoding="utf-8") as file:
                yield file.read().strip(), os.path.exists(os.path.join(path, minion, "return.p"))
        except OSError:
            # Deleted meanwhile: it was too old.
            continue


def newest_jobs(place):
    """Returns the directories of the newest jobs, the newest first."""
    try:
        tops = [entry.path for entry in os.scandir(place) if entry.is_dir()]
    except FileNotFoundError:
        return []
    paths = (os.path.join(top, name) for top in tops for name in os.listdir(top))
    return [path for _, path in heapq.nlargest(JOBS_SEARCHED, ((modified(os.path.join(path, "jid")) or 0, path) for path in paths))]


def _jobs(cache, name, minion):
    for jid in sorted(cache[f"{name}.get_jids"]() or (), reverse=True)[:JOBS_SEARCHED]:
        yield jid, minion in (cache[f"{name}.get_jid"](jid) or {})


# --- signs of life -------------------------------------------------------------------------------------------------------


def _seen(opts, found):
    import salt.cache
    import salt.utils.minions

    minion, store = found.minion, salt.cache.factory(opts)
    signs = [(store.updated(bank, key), "its grains or pillar came") for bank, key in (("grains", minion), ("pillar", minion), (f"minions/{minion}", "data"))]
    signs.append((modified(os.path.join(opts["cachedir"], "sessions", minion)), "it signed in"))
    jobs = os.path.join(opts["cachedir"], "jobs")
    for path in newest_jobs(jobs):
        at = modified(os.path.join(path, minion, "return.p"))
        if at:
            signs.append((at, "it returned a job"))
            break
    signs = [(at, how) for at, how in signs if at]
    found.seen, found.seen_how = max(signs, default=(None, ""))
    _, grains, _ = salt.utils.minions.get_minion_data(minion, opts)
    grains = grains if isinstance(grains, dict) else {}
    found.version = version_of(grains.get("saltversion"))
    _connection(opts, found, grains)


def _connection(opts, found, grains):
    own = addresses_of(grains) - LOOPBACK
    there = own & connected_addresses(opts) if own else set()
    note_connection(found, own, there, _others(opts, found.minion, there) if there else [])


def connected_addresses(opts):
    """Returns the addresses from which connections to the publisher come."""
    import salt.utils.network

    peers = salt.utils.network.local_port_tcp(int(opts["publish_port"]))
    if peers & LOOPBACK:
        # A minion on this host.
        peers |= set(salt.utils.network.ip_addrs()) | set(salt.utils.network.ip_addrs6())
    return peers


def note_connection(found, own, there, others):
    """
    Notes whether a minion is connected, by its own addresses, and those of them from which a connection comes; an address that `others` have, too, says
    nothing. An address translation between the two hides it.
    """
    there = sorted(there)
    if not own:
        found.connection = "the master has no addresses of it"
    elif others:
        found.connection = f"a connection comes from {there[0]}, which {others[0]} has, too"
    else:
        found.connected = bool(there)
        found.connection = f"connected from {there[0]}" if there else f"no connection comes from {', '.join(sorted(own))}"


def _others(opts, minion, addresses):
    """Returns other minions with one of these addresses."""
    import salt.key
    import salt.utils.minions

    for other in salt.key.Key(opts).list_keys().get("minions", ()):
        _, grains, _ = salt.utils.minions.get_minion_data(other, opts)
        if other != minion and addresses & addresses_of(grains):
            return [other]
    return []


def addresses_of(grains):
    return answers.addresses(grains.get("ipv4")) | answers.addresses(grains.get("ipv6")) if isinstance(grains, dict) else set()


def version_of(told):
    """Returns a version of Salt, as a minion says it; None: it says none."""
    return values.text(told, limit=64) if isinstance(told, str) else None


def refusals(opts, ids):
    """Returns the refusals of these minions in the master's log, by their ids."""
    found = {}
    try:
        with open(opts.get("log_file") or os.devnull, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        # A log that goes elsewhere (file:///dev/log) is read there.
        return found
    for line in lines:
        kinds = [kind for kind, words in REFUSALS.items() if re.search(words, line)]
        names = {name.rstrip(".") for name in re.findall(r"[\w.-]+", line)} & ids if kinds else ()
        for name in names:
            found.setdefault(name, []).extend((kind, facts.time_of_line(line), line[:SHOWN_CHARACTERS]) for kind in kinds)
    return found


def rollout_line(record, minion):
    host = record["hosts"][minion]
    return f"{record['id']} to {record['release']}, {record['status']}: {minion} is {host['state']}" + (f": {values.shown(host['text'])}" if host.get("text") else "")


# --- what the minion says ------------------------------------------------------------------------------------------------


def _ask(opts, found, seconds):
    import salt.exceptions

    # One job for each: while a job of several functions runs, Salt fails to begin a state run. The first one is known to be no user's.
    questions = {"sidle.job": [found.jid], "test.version": []}
    # After `sidle.job`: it deletes what a dead process left behind.
    if found.jid:
        questions["saltutil.find_job"] = [found.jid]
    matcher = MATCHERS.get(found.job.tgt_type) if found.job else None
    if matcher:
        questions[matcher] = [found.job.tgt]
    for is_last in (False, True):
        found.now = time.time()
        try:
            told = _told(opts, found.minion, questions, seconds)
            break
        except (salt.exceptions.SaltClientError, salt.exceptions.SaltReqTimeoutError):
            found.master_is_up = False
            return
        except OSError:
            # The stream of the master's bus was closed.
            if is_last:
                found.master_is_up = listens(opts)
                return
    found.master_is_up = bool(told) or listens(opts)
    found.answers = bool(told)
    if not found.answers:
        return
    said(found, told, matcher)


def said(found, told, matcher):
    """Turns what the minion has answered to each question into evidence; nonsense is none."""
    found.version = version_of(told.get("test.version")) or found.version
    found.running = _readable(answers.taken(answers.process, told.get("saltutil.find_job")))
    own = told.get("sidle.job")
    if isinstance(own, dict):
        known = answers.taken(answers.job, own)
        if isinstance(known, answers.Unreadable):
            found.own_lack = str(known)
        else:
            found.own_lack, found.own = known.pop("error", None), known
    else:
        found.own_lack = f"it has no function sidle.job of this release ({values.shown(own)}): `salt {found.minion} saltutil.sync_modules`"
    matched = told.get(matcher) if matcher else None
    if isinstance(matched, bool):
        found.matches = matched
    elif matcher:
        # The end of a traceback says what it is about.
        found.match_error = values.shown(matched[-SHOWN_CHARACTERS:] if isinstance(matched, str) else matched)


def _told(opts, minion, questions, seconds):
    """Asks each question, up to the first one that the minion does not answer; returns the answers."""
    import salt.client

    told = {}
    with salt.client.LocalClient(mopts=opts) as client:
        for function, arguments in questions.items():
            if function == "saltutil.find_job" and facts.is_stale(told.get("sidle.job")):
                continue
            # Silence and the answer False are told apart only in the whole return.
            answers = client.cmd([minion], function, arguments, timeout=seconds, tgt_type="list", full_return=True)
            answer = answers.get(minion) if isinstance(answers, dict) else None
            # Salt has words of its own for a silent minion ("Minion did not return. [Not connected]").
            if not isinstance(answer, dict) or "ret" not in answer or answer.get("out") == "no_return":
                break
            told[function] = answer["ret"]
    return told


def listens(opts):
    address = opts.get("interface") or "127.0.0.1"
    try:
        with socket.create_connection(("127.0.0.1" if address in ("0.0.0.0", "::") else address, int(opts["ret_port"])), timeout=5):
            return True
    except OSError:
        return False
