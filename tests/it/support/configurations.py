"""Compare what sidle asks a release with what that release's Salt loads, on generated configurations.

    TREE/bin/python3 -I configurations.py OPTIONS_PY ASKING_PY COUNT SEED
    TREE/bin/python3 -I configurations.py --serve SEED

Salt is imported once; for each configuration two children go on from there: one is sidle's program, the other loads the configuration by
`salt.config.minion_config` as the minion does, and takes masters apart by `salt.minion`. Prints how many were compared, and how many of them Salt refuses.

With `--serve` each line of standard input is the number of a configuration and a directory: it is written there, into `etc` (`-` instead of a number: it
is there already), and what Salt loads is printed as one line of JSON.
"""

import gc
import json
import os
import random
import shutil
import sys
import tempfile

import salt.config
import salt.minion
import salt.utils.network
import salt.version

PATHS = ("cachedir", "extension_modules", "pki_dir", "sock_dir", "pidfile", "log_file")

IDS = ["id: a", "id: 0777", "id: 101444_2631", "id: 12", "id: 'web 1'", "id: 1.5", "id: true", "id: 2026-11-25", "id: !!str 7", "", ""]
MASTERS = ["master: salt", "master:\tsalt", "master: [a, b, 'c:4507']", "master: &m 10.0.0.1\nsyndic_master: *m", "master: 'host:14506'",
           "master: '[::1]:4510'", "master: fe80::1", "master:\n- a\n- a\n- b", "master: a, b", "master: []", "master: ''", "master: 5", "master: null",
           "master: 'a:x'", "master: {a: b}", "master: 'sdb://x/y'", "x: &x {master: m1}\n<<: *x", ""]
KINDS = ["", "", "", "", "master_type: failover", "master_type: disable", "master_type: distributed", "master_type: func", "master_type: other",
         "master_type: null"]
PORTS = ["", "", "", "master_port: 4600", "master_port: '4601'", "master_port: 0x11fa", "master_port: x", "publish_port: 4506", "publish_port: 4700",
         "publish_port: '4701'", "master_port: 99999", "publish_port: null", "master_uri_format: ip_only", "master_port: 4_602", "master_port: 1:16:40"]
DIRECTORIES = ["", "cachedir: /c", "cachedir: /var/c\nsock_dir: /a/very/long/directory/for/sockets/of/a/minion", "root_dir: /srv/root", "root_dir: '@/root'",
               "pki_dir: keys", "cachedir: cache", "sock_dir: run/s", "pidfile: p.pid", "pidfile: /run/p/x.pid", "extension_modules: ''",
               "extension_modules: /ext", "root_dir: /srv/root\npki_dir: /srv/root/keys", "root_dir: relative", "root_dir: /x/\ncachedir: /x",
               "cachedir: 5", "pki_dir: null", "log_file: file:///dev/log", "log_file: logs/minion", "root_dir: null", "cachedir: ~/c", "pidfile: [a]"]
APPENDED = ["", "", "", "append_minionid_config_dirs: [pki_dir]", "append_minionid_config_dirs: [pki_dir, cachedir, extension_modules, pidfile]",
            "append_minionid_config_dirs: [cachedir]", "append_minionid_config_dirs: cachedir", "append_minionid_config_dirs: [default_include]"]
TYPES = ["", "", "multiprocessing: 'True'", "multiprocessing: 'False'", "multiprocessing: no", "multiprocessing: 0", "multiprocessing: ''",
         "multiprocessing: null", "multiprocessing: [x]", "ipv6: yes", "ipv6: 'no'", "user: root", "user: ''", "user: 5", "user: null",
         "append_domain: example.com", "hash_type: SHA512", "environment: base", "transport: tcp", "transport: null", "ssl: true"]
INCLUDES = ["", "", "", "include: extra.conf", "include: [extra.conf, 'more/*.conf']", "include: 'no/such/*'", "default_include: 'other.d/*.conf'",
            "default_include: ''", "include: 5", "include: {a: b}", "include: minion", "include: [null]", "default_include: [minion.d/a.conf, extra.conf]"]
BROKEN = ["master: [", "\tid: a", "a: b: c", "- a\n- b", "text", "id: a\n---\nid: b", "%YAML 1.1\n---\nid: x", "? a\n: b", "id: \x00", "id: *none",
          "a: !!python/object:os.system x", "{id: a, id: b}", "\ufeffid: bom", "id: a # c\n...", "? [a, b]\n: c", "on: off\nid: yes", "a: |\n  b\n c"]
# What PyYAML takes, and other readers of YAML refuse or take for something else: tabs, words and numbers of YAML 1.1, odd ends and beginnings.
PECULIAR = ["master:\tsalt", "master: salt\t", "master: salt\t# c", "master:\t'salt'", "master: [a,\tb]", "master: [\ta, b\t]", "master: {}\nid:\ta",
            "%YAML 1.1\n---\nid: x", "%YAML 1.2\n---\nid: x", "%TAG ! tag:x,2000:\n---\nid: x", "--- {id: x}", "---\nid: x\n...", "id: x\n...\n# c",
            "\ufeffid: bom", "id: 0o17", "id: 017", "id: 1_000", "id: 0b11", "id: 190:20:30", "id: 0x_f", "id: .5", "id: 1e3", "id: +12", "id: 2026-11-25",
            "id: 2026-11-25T10:00:00Z", "ipv6: y\nid: n", "ipv6: On\nid: OFF", "ipv6: Yes", "id: ~", "id: Null", "id: =", "id: <<", "? id\n: x",
            "id: \"a\\/b\"", "id: \"\\x61\\u0062\"", "id: 'it''s'", "id: a\n  b", "id: >-\n  a\n  b", "id: |-\n  a", "id: !!str 07", "id: !!int '7'",
            "id: &i x\nuser: *i", "x: &x {id: m}\n<<: *x", "x: &x {id: m}\n<<: [*x, {user: root}]", "id: a\nid: b", "{id: x, }", "{id: x, user}",
            "'id': x", "\"id\": x", "id: a:b", "id: a#b", "id: a # c", "id : x", "id: x\r\nuser: root\r\n", "id: a\u0085user: root", "id: \"a\u2028b\"",
            "master: [a, b,]", "master:\n- a\n-\tb", "master:\n  - a\n  - b", "master: [[a], b]"]
SCHEDULES = ["schedule: {j: {function: test.ping, seconds: 5}}\n", "\0" * 64, "schedule: {j: {functi", "", "schedule:\n\t- x\n"]


# Most choices are of what Salt takes.
RARE = ("cachedir: 5", "pki_dir: null", "root_dir: null", "pidfile: [a]", "include: 5", "include: {a: b}", "include: [null]", "include: minion",
        "hash_type: 5", "transport: null", "ssl: true")


def generated(choice, place):
    """Write one configuration."""
    etc = os.path.join(place, "etc")
    os.makedirs(os.path.join(etc, "minion.d"))

    def pick(values):
        found = choice.choice(values)
        return choice.choice(values) if found in RARE and choice.random() < 0.8 else found

    lines = [pick(IDS), pick(MASTERS), pick(KINDS), pick(PORTS), pick(DIRECTORIES), pick(APPENDED), pick(TYPES), pick(INCLUDES)]
    choice.shuffle(lines)
    text = "\n".join([*lines, ""]).replace("@", place)
    if choice.random() < 0.08:
        text = pick(BROKEN) + "\n" + (text if choice.random() < 0.5 else "")
    if choice.random() < 0.07:
        at = choice.randrange(len(text) + 1)
        text = text[:at] + pick(["\t", "'", ":", "&", "\0", "\u2028", "\x85", "[", "-", " "]) + text[at:]
    files = {"minion": text} if choice.random() < 0.93 else {}
    if choice.random() < 0.5:
        files["minion.d/a.conf"] = "\n".join([pick(MASTERS), pick(DIRECTORIES), pick(TYPES), ""]).replace("@", place)
    if choice.random() < 0.3:
        files["minion.d/b.conf"] = "\n".join([pick(IDS), pick(PORTS), pick(["", "include: ../extra.conf", "beacons: {}"]), ""])
    if choice.random() < 0.35:
        files["minion.d/_schedule.conf"] = pick(SCHEDULES)
    if choice.random() < 0.03:
        files["minion.d/c.conf"] = pick(BROKEN)
    for name in ("extra.conf", "more/z.conf", "other.d/o.conf"):
        if choice.random() < 0.6:
            files[name] = "\n".join([pick(MASTERS), pick(APPENDED), pick(DIRECTORIES), ""]).replace("@", place)
    if choice.random() < 0.3:
        files["../root/etc/salt/minion_id"] = pick(["kept.example\n", "", "localhost\n", "\ufeffbom\n"])
    for name, content in files.items():
        path = os.path.normpath(os.path.join(etc, name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(content)
    return etc


def peculiar(number, directory):
    """Replace the file of a minion by one of those texts."""
    with open(os.path.join(directory, "minion"), "w", encoding="utf-8", newline="") as file:
        file.write(PECULIAR[number])
    shutil.rmtree(os.path.join(directory, "minion.d"))


def vast(number, directory):
    """Add what is small for Salt, and more than a pipe or a patient reader takes when each alias and file is told."""
    if number == 0:
        with open(os.path.join(directory, "minion"), "w", encoding="utf-8") as file:
            file.write("id: a\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
            for level in range(1, 9):
                file.write(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n")
    for name in range(900 if number == 1 else 0):
        with open(os.path.join(directory, "minion.d", f"{name:04}.conf"), "w", encoding="utf-8") as file:
            file.write("grains: {}\n")


def told_by(act):
    """What a child prints, as JSON; None: it printed nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.dup2(write, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            act()
        except BaseException as error:
            os.write(1, json.dumps({"failure": f"{type(error).__name__}: {error}"}).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def loaded(directory):
    """Print what Salt itself makes of it; nothing that another host would have to answer."""
    os.replace = lambda *_: None
    salt.config.apply_sdb = lambda opts, *more: opts
    opts = salt.config.minion_config(os.path.join(directory, "minion"), ignore_config_errors=False)
    told = {name: None if opts.get(name) is None else str(opts[name]) for name in PATHS}
    told.update(id=str(opts["id"]), user=str(opts["user"]) if opts.get("user") else None)
    told.update(multiprocessing=bool(opts.get("multiprocessing", True)), ipv6=bool(opts.get("ipv6")))
    masters = opts["master"] if isinstance(opts["master"], list) else [opts["master"]]
    # Where a site means what Salt refuses or another host says, there is nothing to compare.
    plain = opts["master_type"] == "str" and all(isinstance(master, str) and master and "sdb:" not in master for master in masters)
    if plain and masters:
        try:
            parsed = [salt.minion.prep_ip_port({"master": master, "master_uri_format": opts["master_uri_format"]}) for master in masters]
            port = int(opts["master_port"])
            publish = int(opts.get("publish_port", 4506))
            if 0 < port < 65536 and 0 < publish < 65536:
                told["masters"] = list(dict.fromkeys(
                    f"{found['master']} {found.get('master_port') or port} {publish}" for found in parsed))
        except (TypeError, ValueError, salt.exceptions.SaltClientError):
            told["masters"] = None
    os.write(1, json.dumps({"failure": None, "options": told}).encode())


def serve(seed):
    os.chdir("/")
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        number, place = line.split(maxsplit=1)
        place = place.strip()
        directory = os.path.join(place, "etc") if number == "-" else generated(random.Random(f"{seed} {number}"), place)
        print(json.dumps(told_by(lambda directory=directory: loaded(directory))), flush=True)


def compared(directory, options, asking):
    """The difference of both views, for people; None: there is none."""
    def asks():
        sys.argv = ["-c", directory, "", options]
        exec(compile(asking, "asking", "exec"), {"__name__": "__main__"})

    mine, salts = told_by(asks), told_by(lambda: loaded(directory))
    if mine is None or salts is None:
        return f"no answer: {mine} {salts}", False
    if salts["failure"] or mine["failure"]:
        agreed = bool(salts["failure"]) == bool(mine["failure"])
        return (None if agreed else f"{mine['failure']} != {salts['failure']}"), True
    options, want = mine["options"], salts["options"]
    if mine["generated"] == "host":
        want["id"] = options["id"]
    masters = want.pop("masters", ...)
    different = {name: (options[name], value) for name, value in want.items() if options[name] != value}
    if masters is None and options["masters_unknown"] is None:
        different["masters"] = (options["masters"], "Salt refuses them")
    elif masters not in (None, ...):
        told = [f"{found['host']} {found['request_port']} {found['publish_port'] or 4506}" for found in options["masters"]]
        if told != masters:
            different["masters"] = (told, options["masters_unknown"], masters)
    return (str(different) if different else None), False


def main(options, asking, count, seed):
    sources = []
    for path in (options, asking):
        with open(path, encoding="utf-8") as file:
            sources.append(file.read())
    # As the minion runs.
    os.chdir("/")
    salt.utils.network.generate_minion_id = lambda: "host.example"
    gc.disable()
    gc.freeze()
    different = refused = taken = 0
    for number in range(int(count)):
        place = tempfile.mkdtemp(prefix="sidle-configuration-")
        try:
            directory = generated(random.Random(f"{seed} {number}"), place)
            vast(number, directory)
            if 2 <= number < 2 + len(PECULIAR):
                peculiar(number - 2, directory)
            found, failed = compared(directory, *sources)
            refused += failed
            taken += 2 <= number < 2 + len(PECULIAR) and not failed
            if found:
                different += 1
                print(f"{number}: {found}")
                for path, _, names in os.walk(place):
                    for name in names:
                        with open(os.path.join(path, name), "rb") as file:
                            print(f"    {os.path.relpath(os.path.join(path, name), place)}: {file.read()!r}")
        finally:
            shutil.rmtree(place)
    print(f"{salt.version.__version__}: {count} configurations, {refused} of them refused by Salt, {different} seen otherwise; {taken} of {len(PECULIAR)} peculiar texts taken")
    # Few of these texts are damage that Salt refuses, too: the others are compared value by value.
    sys.exit(bool(different) or taken < 50)


serve(sys.argv[2]) if sys.argv[1] == "--serve" else main(*sys.argv[1:])
