"""The work of `sidle_highstate.py`'s child: renders the highstate, runs it with test=True, and says in hashes what came of it."""

import contextlib
import copy
import hmac
import inspect
import json
import os
import re
import sys
import tempfile
import time
import typing

REASONS_MAX = 8
NAME_LENGTH_MAX = 200
HASH_LENGTH = 24
ADDRESS = re.compile("0x[0-9a-f]{6,}")
# Not compared: the words that name a state, which the report has by themselves, and its place in the order.
NOT_COMPARED = ("fun", "order", "prerequired", "state")
# What Salt says of a template that it cannot render; the rest of its text may hold what it renders.
SAYINGS = (
    ("requisite", re.compile(r"Referenced state does not exist for requisite .* in state \[(?P<name>.*)\] in SLS")),
    ("recursive", re.compile(r"Recursive requisites were found: .*'ID': '(?P<name>[^']*)'")),
    ("sls", re.compile(r"No matching sls found for '(?P<name>[^']+)' in env")),
    ("sls", re.compile(r"Specified SLS (?P<name>\S+) in saltenv \S+ is not available")),
    ("sls", re.compile(r"Unknown include: Specified SLS (?P<name>\S+: \S+) is not available")),
    ("template", re.compile(r"(?P<name>)Jinja error: \S+\n(?s:.*)TemplateNotFound")),
    ("function", re.compile(r"Loader object' has no attribute '(?P<name>\w+(?:\.\w+)?)'")),
)
OF_SLS = re.compile(r"(?:Rendering SLS|in SLS|'SLS':) ['\[]?(?P<sls>[\w./:-]+)")


class Reason(Exception):
    """Why there are no states."""

    def __init__(self, kind, name="", sls=""):
        super().__init__(kind)
        self.kind, self.name, self.sls = kind, name, sls

    def told(self):
        """As the report has it."""
        return {"kind": self.kind, "name": self.name[:NAME_LENGTH_MAX], "sls": self.sls[:NAME_LENGTH_MAX]}


def reason_of(saying, ids):
    """What can be said of an error of Salt's without saying what it rendered. A state is called by its id, or not at all."""
    where = OF_SLS.search(saying)
    for kind, pattern in SAYINGS:
        found = pattern.search(saying)
        if found:
            is_named = kind not in ("requisite", "recursive") or found["name"] in ids
            return Reason(kind, found["name"] if is_named else "", where["sls"] if where else "")
    return Reason("render", "", where["sls"] if where else "")


class Grains(dict):
    """The grains, which notice who reads them."""

    readers: typing.ClassVar[dict] = {}
    reader = None

    def noticed(self, name):
        """Remember who has read this grain."""
        Grains.readers.setdefault(Grains.reader, set()).add(name)

    def __getitem__(self, name):
        self.noticed(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.noticed(name)
        return super().get(name, default)

    def peek(self, name):
        """The grain, unnoticed."""
        return super().get(name)


class Work:
    """The work of the child."""

    def __init__(self, wanted, opts, origin):
        import salt.state

        self.wanted, self.origin, self.salt = wanted, origin, salt.state
        self.pillar, self.pillar_age = self.read_pillar()
        self.opts = self.options(opts)
        self.paths = re.compile("|".join(map(re.escape, {os.path.realpath(sys.prefix), sys.prefix})) + r"|" +
                                re.escape(wanted.place) + r"[\w./-]*")
        self.broken_top, self.unrendered = False, None
        self.tested, self.last, self.ids, self.texts = None, ("", ""), frozenset(), {}
        self.watch()

    def read_pillar(self):
        """The cached pillar and its age; None for a minion without a master, which makes its pillar itself."""
        if self.origin["local"]:
            return None, None
        # As salt.minion.SMinion writes it: data, which must not be rendered a second time.
        path = os.path.join(self.origin["cachedir"], "pillar", "cache.sls")
        try:
            import salt.utils.yaml

            with open(path, "rb") as file:
                age = int(max(0, time.time() - os.fstat(file.fileno()).st_mtime))
                pillar = salt.utils.yaml.safe_load(file) or {}
        except FileNotFoundError:
            raise Reason("pillar") from None
        with contextlib.suppress(ImportError):
            # As a minion of 3008 has what its master sends.
            from salt.utils.secret import hide

            pillar = hide(pillar)
        return pillar, age

    def options(self, opts):
        """The options of a minion that applies its states itself, with every trace in memory."""
        opts = dict(opts.items())
        cache = os.path.join(self.wanted.place, "cache")
        os.mkdir(cache, 0o700)
        os.environ["TMPDIR"] = tempfile.tempdir = self.wanted.place
        opts.update(cachedir=cache, file_client="local", test=True, state_events=False, use_master_when_local=False, local_state=False)
        opts["grains"] = Grains(opts["grains"])
        if self.origin["local"]:
            return opts
        files = os.path.join(self.origin["cachedir"], "files")
        environments = sorted(os.listdir(files)) if os.path.isdir(files) else []
        if not any(os.path.isfile(os.path.join(files, name, "top.sls")) for name in environments):
            raise Reason("files")
        opts["file_roots"] = {name: [os.path.join(files, name)] for name in environments}
        opts.update(fileserver_backend=["roots"], pillar_roots={}, ext_pillar=[], pillar=self.pillar)
        # Sources from elsewhere, which the minion has fetched.
        os.symlink(os.path.join(self.origin["cachedir"], "extrn_files"), os.path.join(cache, "extrn_files"))
        return opts

    def watch(self):
        """Notice which grains each SLS and each state reads, a top file that cannot be rendered, and the states that are run."""
        template = sys.modules["salt.template"]
        base, state, check = self.salt.BaseHighState, self.salt.State, template.check_render_pipe_str
        render, call, tops, chunks, compiled = base.render_state, state.call, base.get_tops, state.call_chunks, state.compile_high_data

        def rendering(high, sls, saltenv, *more, **named):
            before, Grains.reader = Grains.reader, ("sls", sls)
            try:
                self.texts.setdefault(sls, self.text_of(high, sls, saltenv))
                return render(high, sls, saltenv, *more, **named)
            finally:
                Grains.reader = before

        def calling(run, low, *more, **named):
            Grains.reader, self.last = ("state", self.salt._gen_tag(low)), named_parts(low)
            return call(run, low, *more, **named)

        def gathering(high, *more, **named):
            # Salt only logs an error here, and goes on without a top file.
            self.broken_top = True
            found = tops(high, *more, **named)
            self.broken_top = False
            return found

        def running(run, all_chunks, *more, **named):
            for low in all_chunks:
                # One after the other, in this process.
                low.pop("parallel", None)
            if self.tested is None:
                self.tested = copy.deepcopy(list(all_chunks))
            return chunks(run, all_chunks, *more, **named)

        def compiling(run, high, *more, **named):
            self.ids = frozenset(map(str, high))
            return compiled(run, high, *more, **named)

        def piping(pipe, *more, **named):
            found = check(pipe, *more, **named)
            if pipe and not found and re.fullmatch(r"[\w| ]+", pipe):
                # Salt only logs this error, and goes on without the SLS.
                self.unrendered = self.unrendered or Reason("renderer", pipe, Grains.reader[1] if Grains.reader else "")
            return found

        base.render_state, base.get_tops, template.check_render_pipe_str = rendering, gathering, piping
        state.call, state.call_chunks, state.compile_high_data = calling, running, compiling

    def text_of(self, high, sls, saltenv):
        """The text of an SLS as it is before it is rendered."""
        path = high.client.get_state(sls, saltenv).get("dest")
        if not path:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def options_of(self, part):
        """Options that the text of a state names, with the defaults that this host leaves them."""
        import salt.config

        text = self.texts.get(part["__sls__"], "")
        own = re.search(rf"^{re.escape(str(part['__id__']))}:.*\n(?:(?:[ \t#{{].*)?\n)*", text, re.M)
        words, defaults = set(re.findall(r"\w+", own[0] if own else text)), salt.config.DEFAULT_MINION_OPTS
        return {name: self.plain(repr(defaults[name]))[:NAME_LENGTH_MAX] for name in sorted(words & set(defaults))
                if self.opts.get(name) == defaults[name]}

    def high_state(self):
        """A fresh one: what one rendering leaves behind must not reach the next."""
        return self.salt.HighState(copy.copy(self.opts), initial_pillar=copy.deepcopy(self.pillar))

    def low(self, high_state):
        """The low data, or why there are none."""
        found = high_state.compile_low_chunks()
        if self.broken_top or self.unrendered:
            raise self.unrendered or Reason("top")
        if not found:
            raise Reason("empty")
        return found

    def report(self):
        """What the child says."""
        first = self.high_state()
        low = self.low(first)
        if not isinstance(low[0], dict):
            reasons = [reason_of(str(saying), self.ids).told() for saying in low]
            return {"reasons": [told for number, told in enumerate(reasons) if told not in reasons[:number]][:REASONS_MAX]}
        low = copy.deepcopy(low)
        results, untested = None, None
        again = self.high_state()
        if self.wanted.tests:
            try:
                results = again.state.call_high(again.render_highstate(again.top_matches(again.get_top()))[0])
                problem = None if isinstance(results, dict) else "errors"
            except Exception as error:  # noqa: BLE001 - Salt passes on what a wrong argument raises, and the run is over.
                problem = type(error).__name__
            if problem:
                results, untested = None, {"exception": problem, "id": self.last[0], "function": self.last[1]}
        second = self.tested if self.tested is not None else self.low(again)
        functions = first.state.states
        signatures = {name: signature(functions, name) for name in {f"{part['state']}.{part['fun']}" for part in low}}
        states = self.states(low, second, signatures)
        read = sorted({name for state in states for name in state["rendered_with"] + state["run_with"]})
        return {"pillar_age": self.pillar_age, "states": states, "results": results and [self.result(results, part) for part in low],
                "untested": untested, "signatures": signatures,
                "grains": {name: self.hash(self.opts["grains"].peek(name)) for name in read}}

    def states(self, low, again, signatures):
        """The states of both renderings."""
        others = {self.salt._gen_tag(part): part for part in again if isinstance(part, dict)}
        found = []
        for part in low:
            tag, (identity, function) = self.salt._gen_tag(part), named_parts(part)
            known = {*signatures[function], *self.salt.STATE_INTERNAL_KEYWORDS, "name"}
            arguments = self.arguments(part, known)
            other = others.get(tag)
            once_more = self.arguments(other, known) if other else {}
            unstable = sorted(name for name in {*arguments, *once_more} if arguments.get(name) != once_more.get(name)) if other else [""]
            grains = [sorted(Grains.readers.get(reader, ())) for reader in (("sls", part["__sls__"]), ("state", tag))]
            found.append({"id": identity, "sls": str(part["__sls__"])[:NAME_LENGTH_MAX], "function": function, "arguments": arguments,
                          "unstable": unstable, "rendered_with": grains[0], "run_with": grains[1], "options": self.options_of(part)})
        return found

    def arguments(self, part, known):
        """The arguments of a state; those of unknown names, which a template may have made, as one without a name."""
        part = {name: value for name, value in part.items() if name not in NOT_COMPARED and not name.startswith("__")}
        found = {name: self.hash(value) for name, value in part.items() if name in known}
        rest = {name: value for name, value in part.items() if name not in known}
        return {**found, **({"": self.hash(rest)} if rest else {})}

    def result(self, results, part):
        """What came of a state; None: nothing."""
        came = results.get(self.salt._gen_tag(part))
        if not isinstance(came, dict):
            return None
        result = came.get("result")
        return {"result": result if isinstance(result, bool) else None, "comment": self.hash([came.get("comment"), came.get("warnings")]),
                "changes": self.hash(came.get("changes"))}

    def hash(self, value):
        """A value by the key of this rehearsal: without the key nobody can tell by trying what it was."""
        text = json.dumps(self.plain(value), sort_keys=True)
        return hmac.new(self.wanted.key, text.encode(), "sha256").hexdigest()[:HASH_LENGTH]

    def plain(self, value):
        """A value without the order of dictionaries, paths of the release, and addresses of objects."""
        if isinstance(value, (bool, int, float, type(None))):
            return value
        if hasattr(value, "items"):
            return {str(self.plain(key)): self.plain(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(part) for part in value]
        if isinstance(value, (set, frozenset)):
            return sorted((self.plain(part) for part in value), key=str)
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        return ADDRESS.sub("0x", self.paths.sub("<release>", text))


def signature(functions, name):
    """The arguments of a state function with their defaults, as text; of a function that is not there: none."""
    try:
        parameters = inspect.signature(functions[name]).parameters.values()
    except (KeyError, TypeError, ValueError):
        return {}
    return {str(part) if part.kind == part.VAR_KEYWORD else part.name: "" if part.default is part.empty else repr(part.default)[:NAME_LENGTH_MAX]
            for part in parameters}


def named_parts(low):
    """The id and the function of a state."""
    return str(low["__id__"])[:NAME_LENGTH_MAX], f"{low['state']}.{low['fun']}"[:NAME_LENGTH_MAX]
