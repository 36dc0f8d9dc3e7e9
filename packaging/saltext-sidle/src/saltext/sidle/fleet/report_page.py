"""The report of a rollout as one HTML page, in the form of a plan's page: no other files, and nothing that a host says is taken for markup."""

from . import states
from .page import POLICY, SCRIPT, STYLE, text

#: How the states of hosts look, what needs a person first.
LOOKS = {
    states.FAILED: "refused", states.REFUSED: "refused", states.LOST: "refused", states.LEFT_OUT: "gone", states.INSTALLING: "offline",
    states.ORDERED: "offline", states.WAITING: "offline", states.OFFLINE: "offline", states.DONE: "go",
}  # fmt: skip

HEADS = ("host", "state", "wave", "from", "to", "family", "downtime", "jobs missed", "ended", "why")


def render(report):
    """Renders the page of a report (`report.made`)."""
    title = f"{text(report['package'])} {text(report['release'])}"
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta name="referrer" content="no-referrer">',
        f'<title>Rollout: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>',
        f'<h1>Rollout: {title}</h1>',
        f'<p class="soft">{text(report["rollout"])} · {text(report["purpose"])} · master {text(report["master"])} · made {text(report["made"])}</p>',
        f'<p><b>{text(report["status"])}</b>{": " + text(report["why"]) if report["why"] else ""}. Begun {text(report["begun"])}, '
        f'the last host ended {text(report["ended"] or "not yet")}. Ordered by {text(report["ordered_by"] or "unknown")}.</p>',
        *_counts(report),
        *_acts(report),
        *_failures(report),
        "</header>\n<main>",
        *_hosts(report),
        *_others(report),
        f'</main>\n<script>{SCRIPT}</script>\n</body>\n</html>',
    ])  # fmt: skip


def _counts(report):
    yield '<ul class="counts">'
    for state, look in LOOKS.items():
        count = report["counts"].get(state)
        if count:
            yield f'<li class="{look}"><b>{count}</b> <span class="v {look}">{state}</span></li>'
    yield "</ul>"


def _table(heads, rows):
    yield f'<table class="waves">\n<thead><tr>{"".join(f"<th>{text(head)}</th>" for head in heads)}</tr></thead>\n<tbody>'
    for row in rows:
        yield f"<tr>{''.join(f'<td>{text(each)}</td>' for each in row)}</tr>"
    yield "</tbody>\n</table>"


def _acts(report):
    if report["acts"]:
        yield "<h2>Who did what</h2>"
        yield from _table(("at", "by", "act", ""), [(act["at"], act["by"], act["act"], act["words"] or "") for act in report["acts"]])


def _failures(report):
    if report["failures"]:
        yield "<h2>Failures</h2>"
        rows = [(each["count"], ", ".join(each["hosts"]), "accepted" if each["accepted"] else "", each["text"]) for each in report["failures"]]
        yield from _table(("hosts", "as", "", "what"), rows)


def _choice(name, values):
    options = "".join(f'<option value="{text(value)}">{text(value)}</option>' for value in values)
    return f'<label>{name}<select name="{name}"><option value="">all</option>{options}</select></label>'


def _hosts(report):
    hosts = report["hosts"].values()
    yield '<h2>Hosts</h2>\n<form class="find" role="search" hidden>'
    yield '<label>find<input type="search" name="find" placeholder="a part of an id or of a reason" autocomplete="off"></label>'
    yield _choice("verdict", [state for state in LOOKS if report["counts"].get(state)])
    yield _choice("wave", sorted({host["wave"] for host in hosts}))
    yield _choice("family", sorted({host["family"] for host in hosts}))
    yield '<button type="reset">show all</button></form>'
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    yield f'<table class="hosts">\n<caption id="shown" aria-live="polite">{len(hosts)} hosts</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>'
    order = list(LOOKS)
    for minion, host in sorted(report["hosts"].items(), key=lambda pair: (order.index(pair[1]["state"]), pair[1]["wave"], pair[0])):
        yield _host(minion, host, order.index(host["state"]), report["jobs_missed_is_whole"])
    yield "</tbody>\n</table>"


def _host(minion, host, place, is_whole):
    down = host["downtime_seconds"]
    before = [f"before: {tried['state']}: {tried['why'] or ''}" for tried in host["earlier"]]
    why = "".join(f"<p>{text(line)}</p>" for line in [*([host["why"]] if host["why"] else []), *before])
    cells = [
        str(host["wave"]), host["from"] or "", host["to"], host["family"], "" if down is None else f"{down:.1f} s",
        f"{'' if is_whole else 'at least '}{host['jobs_missed']}" if down else "", host["ended"] or "",
    ]  # fmt: skip
    return (
        f'<tr data-verdict="{host["state"]}" data-wave="{host["wave"]}" data-family="{text(host["family"])}"><th scope="row">{text(minion)}</th>'
        f'<td class="v {LOOKS[host["state"]]}" data-key="{place}">{host["state"]}</td>'
        f"{''.join(f'<td>{text(cell)}</td>' for cell in cells)}<td>{why}</td></tr>"
    )


def _others(report):
    if report["not_going"]:
        yield "<h2>Not ordered: the plan had left them out</h2>"
        rows = [(minion, host["verdict"], host["from"] or "", "; ".join(host["why"])) for minion, host in sorted(report["not_going"].items())]
        yield from _table(("host", "verdict", "runs", "why"), rows)
