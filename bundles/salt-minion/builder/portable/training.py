"""What an instrumented Python runs, so that the compiler learns which code is hot: what a Salt program does at its start, and little else.

Run by that Python itself, out of an archive with the standard library, which has no compiled modules yet. Nothing in it depends on the time, on chance, on
a directory or on the order of its files, so that two builds learn the same.
"""

import argparse
import ast
import collections
import copy
import dataclasses
import enum
import fnmatch
import functools
import importlib.machinery
import inspect
import io
import json.decoder
import json.encoder
import keyword
import linecache
import locale
import marshal
import opcode
import os
import posixpath
import pprint
import re
import shlex
import string
import sys
import textwrap
import tokenize
import traceback
import types
import typing
import urllib.parse
import warnings
import zipimport

MODULES = (argparse, ast, collections, copy, dataclasses, enum, fnmatch, functools, importlib.machinery, inspect, io, json.decoder,
           json.encoder, keyword, linecache, locale, opcode, os, posixpath, pprint, re, shlex, string, textwrap, tokenize, traceback, types,
           typing, urllib.parse, warnings)
ROUNDS = 12


def sources():
    """Give the text of each module, by its name."""
    archive = zipimport.zipimporter(sys.path[0])
    return {module.__name__: archive.get_source(module.__name__.replace(".", "/")) for module in MODULES}


def load(texts):
    """Compile each module once, and load it many times from what a .pyc has: that is how a program starts."""
    compiled = {name: marshal.dumps(compile(text, f"{name}.py", "exec", dont_inherit=True)) for name, text in texts.items()}
    for _ in range(ROUNDS):
        for name, code in compiled.items():
            module = types.ModuleType(name)
            module.__package__ = sys.modules[name].__package__
            # A class looks for its module there.
            former, sys.modules[name] = sys.modules[name], module
            try:
                exec(marshal.loads(code), module.__dict__)
            finally:
                sys.modules[name] = former


def find():
    """Look for modules as imports do, those that there are and those that there are not."""
    for _ in range(ROUNDS):
        for module in MODULES:
            if "." not in module.__name__:
                importlib.machinery.PathFinder.find_spec(module.__name__)
                importlib.machinery.PathFinder.find_spec(f"not_{module.__name__}")


def search(texts):
    """Compile patterns, and search with them."""
    patterns = [r"^(\s*)def (\w+)\((.*?)\):", r"(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.+)$", r"[\"']{1,3}", r"\b(if|for|while|with)\b[^:]*:",
                r"(?:\d+\.)*\d+(?:rc|b|a)?\d*", r"(?i)todo|fixme|xxx", r"\s+", r"([0-9a-f]{2}:?){4,6}", r"^[^#\n]*#(.*)$"]
    for _ in range(ROUNDS):
        re.purge()
        found = [re.compile(pattern, re.MULTILINE) for pattern in patterns]
        for text in list(texts.values())[:6]:
            for pattern in found:
                sum(len(match.group()) for match in pattern.finditer(text[:12000]))
            re.sub(r"\s+", " ", text[:12000])


@dataclasses.dataclass(frozen=True)
class Entry:
    """A value of the kind that programs pass around."""

    name: str
    size: int
    words: tuple = ()


def work(texts):
    """Text, data and exceptions."""
    for name, text in list(texts.items())[:12]:
        words = collections.Counter(re.findall(r"\w+", text))
        entries = sorted((Entry(word, count, (name, word.upper())) for word, count in words.items()), key=lambda entry: (-entry.size, entry.name))
        data = {entry.name: {"size": entry.size, "words": list(entry.words), "is": entry.size > 3} for entry in entries[:120]}
        copied = copy.deepcopy(json.loads(json.dumps(data, sort_keys=True)))
        for key, value in copied.items():
            try:
                data[key]["size"] += value["size"] if value["is"] else value["none"]
            except KeyError as error:
                "".join(traceback.format_exception_only(error)) + f"{key} has no {error}: {text[:20]}"
        lines = [line.strip() for line in text.splitlines() if line and not line.startswith("#")]
        "\n".join(f"{number:>5} {line}" for number, line in enumerate(lines)).replace("self", "this").encode().decode()
        list(tokenize.generate_tokens(io.StringIO(text).readline))
        ast.unparse(ast.parse(text))


def main():
    """Do all of it."""
    # The archive alone: a directory lists its files in an order of its own.
    del sys.path[1:]
    texts = sources()
    load(texts)
    find()
    search(texts)
    work(texts)


if __name__ == "__main__":
    main()
