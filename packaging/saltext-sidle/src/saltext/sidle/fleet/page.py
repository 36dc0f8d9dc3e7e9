"""A plan as one HTML page: no other files, readable without JavaScript, and nothing that a host says is taken for markup."""

import base64
import hashlib
import html

from .groups import Group
from .table import ORDER, printable, wave_name

#: What the verdicts mean, as columns of numbers at the top.
MEANINGS = {
    "refused": "need a person first",
    "go": "in the waves below",
    "offline": "go when they come back",
    "gone": "nobody waits for them",
    "there": "have it already",
}

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--soft:#59636e;--line:#d1d9e0;--plate:#f6f8fa;--go:#1a7f37;--refused:#cf222e;--offline:#9a6700;
--gone:#59636e;--there:#0969da}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#3d444d;--plate:#151b23;--go:#3fb950;--refused:#f85149;
--offline:#d29922;--gone:#9198a1;--there:#4493f8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:90rem;padding:1.5rem;background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.75rem 0 .5rem}p{margin:.25rem 0}
.soft{color:var(--soft)}
.counts{display:flex;flex-wrap:wrap;gap:.6rem;padding:0;margin:1.1rem 0;list-style:none}
.counts li{border:1px solid var(--line);border-left:.3rem solid var(--soft);border-radius:.4rem;padding:.4rem .9rem;background:var(--plate);min-width:8rem}
.counts b{display:block;font-size:1.5rem;line-height:1.2;font-variant-numeric:tabular-nums}
.notes{margin:.5rem 0;padding:.5rem .9rem .5rem 2rem;border:1px solid var(--line);border-left:.3rem solid var(--offline);border-radius:.4rem}
.notes li{margin:.2rem 0;overflow-wrap:anywhere}
.bar{display:block;width:100%;height:.8rem;margin:.5rem 0;fill:var(--go)}
.find{display:flex;flex-wrap:wrap;gap:.6rem;align-items:end;margin:.5rem 0}
label{color:var(--soft);font-size:.85rem}input,select,button{display:block;font:inherit;color:inherit;background:var(--plate);border:1px solid var(--line);
border-radius:.4rem;padding:.35rem .6rem}input{width:min(24rem,80vw)}
table{border-collapse:collapse;width:100%}caption{text-align:left;color:var(--soft);padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid var(--line)}
thead th{position:sticky;top:0;background:var(--back);white-space:nowrap;border-bottom:2px solid var(--line)}
thead button{border:0;background:none;padding:0;font-weight:inherit;cursor:pointer}
thead th[aria-sort=ascending] button::after{content:" \\2191"}thead th[aria-sort=descending] button::after{content:" \\2193"}
tbody th{font-weight:600}.hosts tbody th{overflow-wrap:break-word;max-width:22rem}.hosts td:nth-child(-n+5){white-space:nowrap}
td:last-child{overflow-wrap:anywhere}td p{margin:0 0 .15rem}
.hosts tbody tr:hover{background:var(--plate)}
.waves{width:auto}.waves td,.waves th{font-variant-numeric:tabular-nums}.waves td:nth-child(-n+3){text-align:right}
.v{font-weight:600;white-space:nowrap}
.v::before{content:"";display:inline-block;width:.6em;height:.6em;border-radius:50%;margin-right:.4em;background:currentColor}
.go{color:var(--go)}.refused{color:var(--refused)}.offline{color:var(--offline)}.gone{color:var(--gone)}.there{color:var(--there)}
.counts .go{border-left-color:var(--go)}.counts .refused{border-left-color:var(--refused)}.counts .offline{border-left-color:var(--offline)}
.counts .there{border-left-color:var(--there)}.counts li{color:var(--text)}
.off,[hidden]{display:none!important}
@media (max-width:44rem){body{padding:.8rem}.hosts thead th{position:static}.hosts thead tr{display:flex;flex-wrap:wrap;gap:.2rem 1rem}
.hosts thead th{border:0;padding:.2rem 0}
.hosts tbody tr{display:grid;grid-template-columns:auto 1fr;gap:0 .8rem;padding:.5rem 0;border-bottom:1px solid var(--line)}
.hosts tbody :is(td,th){border:0;padding:.1rem 0}.hosts tbody th,.hosts tbody td:last-child{grid-column:1/-1}.hosts td:empty{display:none}}
@media print{:root{--back:#fff;--text:#000;--soft:#444;--line:#999;--plate:#fff}body{max-width:none;padding:0;font-size:10pt}.find,.bar{display:none}
thead th{position:static}thead{display:table-header-group}tr{break-inside:avoid}a{color:inherit}}
"""

# The state of the filter stands in the address after `#`, so that a link shows what was found.
SCRIPT = """
"use strict";
const body=document.querySelector(".hosts tbody"),rows=[...body.rows],form=document.forms[0],shown=document.getElementById("shown");
const text=new Map(rows.map(row=>[row,row.textContent.toLowerCase()])),fields=["find","verdict","wave","family"];
let timer;
function show(){
  const words=form.find.value.toLowerCase().split(/\\s+/).filter(Boolean);let count=0;
  for(const row of rows){
    const is=name=>!form[name].value||row.dataset[name]===form[name].value;
    const fits=is("verdict")&&is("wave")&&is("family")&&words.every(word=>text.get(row).includes(word));
    row.hidden=!fits;count+=fits;
  }
  shown.textContent=count===rows.length?`${count} hosts`:`${count} of ${rows.length} hosts`;
}
function keep(){
  const told=new URLSearchParams(fields.filter(name=>form[name].value).map(name=>[name,form[name].value])).toString();
  history.replaceState(null,"",told?"#"+told:"#");show();
}
function read(){
  const told=new URLSearchParams(location.hash.slice(1));
  for(const name of fields)form[name].value=told.get(name)||"";
  show();
}
function value(row,column){
  const cell=row.cells[column];
  return cell.dataset.key||cell.textContent;
}
function sort(column,down){
  const order=new Intl.Collator("en",{numeric:true}),keyed=rows.map(row=>[value(row,column),row]);
  keyed.sort((one,other)=>(down?-1:1)*order.compare(one[0],other[0]));
  body.append(...keyed.map(pair=>pair[1]));
  document.querySelectorAll(".hosts thead th").forEach((head,number)=>{
    if(number===column)head.setAttribute("aria-sort",down?"descending":"ascending");else head.removeAttribute("aria-sort");
  });
}
document.querySelectorAll(".hosts thead th").forEach((head,number)=>{
  const button=document.createElement("button");button.type="button";button.append(...head.childNodes);head.append(button);
  button.addEventListener("click",()=>sort(number,head.getAttribute("aria-sort")==="ascending"));
});
form.addEventListener("input",()=>{clearTimeout(timer);timer=setTimeout(keep,80)});
form.addEventListener("submit",event=>event.preventDefault());
form.addEventListener("reset",()=>setTimeout(keep,0));
addEventListener("hashchange",read);
form.hidden=false;read();
"""


def _digest(content):
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


#: What a page may load: nothing; its own style and script are known by their digests, so that no text of a host could run.
POLICY = f"default-src 'none'; style-src {_digest(STYLE)}; script-src {_digest(SCRIPT)}; base-uri 'none'; form-action 'none'"


def text(value):
    """Returns a text of a host, harmless in content and in attributes, and without characters that show nothing or turn the line around."""
    return html.escape(printable(str(value)), quote=True)


def render(plan, target, made):
    """Renders the page. `target`: what was asked for; `made`: when, both for people."""
    title = text(f"{plan.package} {plan.release}")
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta name="referrer" content="no-referrer">',
        f'<title>Plan: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>',
        f'<h1>Plan: {title}</h1>\n<p class="soft">Target {text(target)} · {len(plan.hosts)} hosts · made {text(made)}. Nothing was changed.</p>',
        *_counts(plan),
        *_notes("Before and after", plan.notes),
        *_notes("Targets that do not reach all of their minions", [line for values in plan.groups for line in Group(**values).lines()]),
        *_masters(plan),
        "</header>\n<main>",
        *_waves(plan),
        *_hosts(plan),
        f'</main>\n<script>{SCRIPT}</script>\n</body>\n</html>',
    ])  # fmt: skip


def _counts(plan):
    yield '<ul class="counts">'
    for verdict in ORDER:
        if plan.count(verdict):
            yield f'<li class="{verdict}"><b>{plan.count(verdict)}</b> <span class="v {verdict}">{verdict}</span> <span class="soft">{MEANINGS[verdict]}</span></li>'
    yield "</ul>"


def _notes(title, lines):
    if lines:
        yield f'<h2>{title}</h2>\n<ul class="notes">'
        yield from (f"<li>{text(line)}</li>" for line in lines)
        yield "</ul>"


def _masters(plan):
    if plan.masters:
        heads = "".join(f'<th scope="col">{head}</th>' for head in ("master", "version", "minimum_auth_version", "hosts"))
        yield f'<h2>Masters</h2>\n<table class="waves">\n<thead><tr>{heads}</tr></thead>\n<tbody>'
        for master in plan.masters:
            told = [text("not known" if master[key] is None else master[key]) for key in ("version", "minimum_auth", "hosts")]
            yield f'<tr><th scope="row">{text(master["name"])}</th><td>{"</td><td>".join(told)}</td></tr>'
        yield "</tbody>\n</table>"


def _waves(plan):
    yield "<h2>Waves</h2>"
    if not plan.waves:
        yield "<p>No wave: nobody goes.</p>"
        return
    going = sum(map(len, plan.waves))
    yield _bar([len(wave) for wave in plan.waves])
    yield '<table class="waves">\n<thead><tr><th scope="col">wave</th><th scope="col">hosts</th><th scope="col">by then</th><th scope="col">families</th></tr></thead>\n<tbody>'
    done = 0
    for wave in plan.waves:
        done += len(wave)
        families = {}
        for minion in wave:
            families[plan.hosts[minion].family] = families.get(plan.hosts[minion].family, 0) + 1
        told = ", ".join(f"{name} {count}" for name, count in sorted(families.items(), key=lambda pair: (-pair[1], pair[0])))
        name = wave_name(plan, plan.hosts[wave[0]])
        share = f"{100 * done / going:.1f}".removesuffix(".0")
        yield f'<tr><th scope="row">{name}</th><td>{len(wave)}</td><td>{share} %</td><td>{text(told)}</td></tr>'
    yield "</tbody>\n</table>"


def _bar(sizes):
    """Returns the waves beside each other, each as wide as it has hosts; the smallest can still be seen."""
    parts, begun = [], 0.0
    for size in sizes:
        width = max(4.0, 1000 * size / sum(sizes))
        parts.append(f'<rect x="{begun:.1f}" width="{width:.1f}" height="8"/>')
        begun += width + 3
    return f'<svg class="bar" viewBox="0 0 {begun - 3:.1f} 8" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def _choice(name, label, values):
    options = "".join(f'<option value="{text(value)}">{text(shown)}</option>' for value, shown in values)
    return f'<label>{label}<select name="{name}"><option value="">all</option>{options}</select></label>'


def _hosts(plan):
    hosts = plan.hosts.values()
    waves = [(number + 1, wave_name(plan, plan.hosts[wave[0]])) for number, wave in enumerate(plan.waves)]
    yield '<h2>Hosts</h2>\n<form class="find" role="search" hidden>'
    yield '<label>find<input type="search" name="find" placeholder="a part of an id or of a reason" autocomplete="off"></label>'
    yield _choice("verdict", "verdict", [(verdict, verdict) for verdict in ORDER if plan.count(verdict)])
    yield _choice("wave", "wave", waves)
    yield _choice("family", "family", [(family, family) for family in sorted({host.family for host in hosts})])
    yield '<button type="reset">show all</button></form>'
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("host", "verdict", "wave", "runs", "family", "why, and what to know"))
    yield f'<table class="hosts">\n<caption id="shown" aria-live="polite">{len(plan.hosts)} hosts</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>'
    for host in sorted(hosts, key=lambda host: (ORDER.index(host.verdict), -1 if host.wave is None else host.wave, host.id)):
        yield _host(plan, host)
    yield "</tbody>\n</table>"


def _host(plan, host):
    wave = "" if host.wave is None else host.wave + 1
    why = "".join(f"<p>{text(reason)}</p>" for reason in host.why) + "".join(f'<p class="soft">{text(note)}</p>' for note in host.notes)
    # The order of waves is that of numbers; hosts without one come last.
    return (
        f'<tr data-verdict="{host.verdict}" data-wave="{wave}" data-family="{text(host.family)}"><th scope="row">{text(host.id)}</th>'
        f'<td class="v {host.verdict}" data-key="{ORDER.index(host.verdict)}">{host.verdict}</td><td data-key="{wave or 1_000_000}">{wave_name(plan, host)}</td>'
        f"<td>{text(host.running or '')}</td><td>{text(host.family)}</td><td>{why}</td></tr>"
    )
