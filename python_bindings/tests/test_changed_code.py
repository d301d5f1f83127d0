# SPDX-License-Identifier: Apache-2.0
"""A finished dataset is opened again only if nothing that its functions use has changed, however they use it."""
from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore._provenance import code as uses, fingerprint

ROWS = [{"x": list(range(500))} for _ in range(20)]

# Each makes `f`, cutting to VALUE items, and says what differs when VALUE goes from 400 to 100.
WAYS = {
    "a constant": ("MAX = VALUE\ndef f(s): return {'x': s['x'][:MAX]}", "map: MAX was 400, is 100"),
    "a dict": ("CONFIG = {'max': VALUE}\ndef f(s): return {'x': s['x'][:CONFIG['max']]}", "map: CONFIG['max'] was 400, is 100"),
    "a nested dict": ("C = {'a': [{'b': VALUE}]}\ndef f(s): return {'x': s['x'][:C['a'][0]['b']]}",
                      "map: C['a'][0]['b'] was 400, is 100"),
    "an object": ("class Tok:\n    def __init__(self, n): self.n = n\n    def cut(self, x): return x[:self.n]\n"
                  "TOK = Tok(VALUE)\ndef f(s): return {'x': TOK.cut(s['x'])}", "map: TOK.n was 400, is 100"),
    "an object with slots": ("class Tok:\n    __slots__ = ('n',)\n    def __init__(self, n): self.n = n\n"
                             "TOK = Tok(VALUE)\ndef f(s): return {'x': s['x'][:TOK.n]}", "map: TOK.n was 400, is 100"),
    "a helper": ("def cut(x): return x[:VALUE]\ndef f(s): return {'x': cut(s['x'])}", "map: the code of cut differs"),
    "a helper's constant": ("MAX = VALUE\ndef cut(x): return x[:MAX]\ndef f(s): return {'x': cut(s['x'])}",
                            "map: MAX was 400, is 100"),
    "a helper's default": ("def cut(x, n=VALUE): return x[:n]\ndef f(s): return {'x': cut(s['x'])}",
                           "map: cut(default 0) was 400, is 100"),
    "a class": ("class Cut:\n    n = VALUE\n    def __call__(self, s): return {'x': s['x'][:self.n]}\nf = Cut()",
                "map: class Cut.n was 400, is 100"),
    "a method": ("class Cut:\n    def __init__(self, n): self.n = n\n    def cut(self, s): return {'x': s['x'][:self.n]}\n"
                 "f = Cut(VALUE).cut", "map: __self__.n was 400, is 100"),
    "a method's code": ("class Cut:\n    def cut(self, s): return {'x': s['x'][:VALUE]}\nC = Cut()\n"
                        "def f(s): return C.cut(s)", "map: the code of class Cut.cut differs"),
    "a closure": ("def make(n):\n    def f(s): return {'x': s['x'][:n]}\n    return f\nf = make(VALUE)", "map: n was 400, is 100"),
    "a partial": ("import functools\ndef cut(s, n): return {'x': s['x'][:n]}\nf = functools.partial(cut, n=VALUE)",
                  "map: keywords['n'] was 400, is 100"),
    "a lambda's default": ("f = lambda s, n=VALUE: {'x': s['x'][:n]}", "map: (default 0) was 400, is 100"),
    "a cached helper": ("import functools\nMAX = VALUE\n@functools.cache\ndef most(): return MAX\n"
                        "def f(s): return {'x': s['x'][:most()]}", "map: MAX was 400, is 100"),
    "a comprehension": ("MAX = VALUE\ndef f(s): return {'x': [i for i in s['x'] if i < MAX]}", "map: MAX was 400, is 100"),
    "a namespace": ("import argparse\nargs = argparse.Namespace(most=VALUE, lr=VALUE)\ndef f(s): return {'x': s['x'][:args.most]}",
                    "map: args.most was 400, is 100"),
    "an array": ("import numpy\nMAX = numpy.array([VALUE])\ndef f(s): return {'x': s['x'][:int(MAX[0])]}", "map: MAX was int64[1]"),
    "a pattern": ("import re\nP = re.compile('a{VALUE}')\ndef f(s): P.match('a'); return {'x': s['x'][:3]}",
                  "map: P.arguments[0] was 'a{400}', is 'a{100}'"),
    "a large table": ("T = {i: VALUE for i in range(1000)}\ndef f(s): return {'x': s['x'][:T[1]]}", "map: T was dict of 1000"),
    "a set": ("S = {'a', 'b', str(VALUE)}\ndef f(s): return {'x': [i for i in s['x'] if str(i) not in S]}",
              "map: S was set of 3"),
    "a base class": ("class A:\n    def cut(self, s): return {'x': s['x'][:VALUE]}\nclass B(A): pass\nb = B()\n"
                     "def f(s): return b.cut(s)", "map: the code of class B(A).cut differs"),
    "a global beside a closure of its name": (
        "MAX = VALUE\ndef cut(x): return x[:MAX]\ndef make(MAX):\n    def f(s): return {'x': cut(s['x'])[:MAX]}\n    return f\n"
        "f = make(450)", "map: MAX#2 was 400, is 100"),
    "a dict of one's own kind": (
        "class V(dict):\n    def __missing__(self, k): return VALUE\nv = V()\ndef f(s): return {'x': s['x'][:v['n']]}",
        "map: the code of class V.__missing__ differs"),
    "a factory": ("import collections\nD = collections.defaultdict(lambda: VALUE)\ndef f(s): return {'x': s['x'][:D[0] + len(D) * 0]}",
                  "map: the code of D.default_factory differs"),
    "a decorator that is an object": (
        "import functools\nclass Most:\n    def __init__(self, g): self.g, self.n = g, VALUE; functools.update_wrapper(self, g)\n"
        "    def __call__(self, s): return {'x': self.g(s)[:self.n]}\n@Most\ndef g(s): return s['x']\ndef f(s): return g(s)",
        "map: the code of class Most.__init__ differs"),
    "a generator of numbers": ("import numpy\nR = numpy.random.default_rng(VALUE)\ndef f(s): R.random(); return {'x': s['x'][:3]}",
                               "map: R."),
    "a module in a module": ("import MODULE\ndef f(s): return {'x': s['x'][:MODULE.inner.deep.MAX]}",
                             "map: MODULE.inner.deep.MAX was 400, is 100"),
    "a function of a module in a module": ("import MODULE\ndef f(s): return {'x': MODULE.inner.deep.cut(s['x'])}",
                                           "map: their_settings.inner.deep.MAX was 400, is 100"),
    "a module of a module, imported in the function": (
        "def f(s):\n    from MODULE import inner\n    return {'x': s['x'][:inner.deep.MAX]}", "map: MODULE.inner.deep.MAX was 400, is 100"),
    "an implementation of singledispatch": (
        "import functools\n@functools.singledispatch\ndef cut(x): return x\n@cut.register\ndef _(x: list): return x[:VALUE]\n"
        "def f(s): return {'x': cut(s['x'])}", "map: the code of cut[builtins.list] differs"),
    "an implementation of singledispatchmethod": (
        "import functools\nclass C:\n    @functools.singledispatchmethod\n    def cut(self, x): return x\n    @cut.register\n"
        "    def _(self, x: list): return x[:VALUE]\nc = C()\ndef f(s): return {'x': c.cut(s['x'])}",
        "map: the code of class C._ differs"),
    "a function of frompyfunc": (
        "import numpy\ndef cut(i): return min(i, VALUE)\nU = numpy.frompyfunc(cut, 1, 1)\n"
        "def f(s): return {'x': U(numpy.array(s['x'])).tolist()}", "map: the code of U.func differs"),
    "a metaclass": (
        "class M(type):\n    def __call__(cls, x): return x[:VALUE]\nclass C(metaclass=M): pass\ndef f(s): return {'x': C(s['x'])}",
        "map: the code of C(metaclass).__call__ differs"),
    "a text of one's own kind": ("class P(str): pass\np = P('VALUE')\ndef f(s): return {'x': s['x'][:int(p)]}",
                                 "map: p.arguments[1] was '400', is '100'"),
    "a module of one's own": ("import MODULE\ndef f(s): return {'x': s['x'][:MODULE.MAX]}", "map: MODULE.MAX was 400, is 100"),
    "an import in the function": ("def f(s):\n    import MODULE\n    return {'x': s['x'][:MODULE.MAX]}",
                                  "map: MODULE.MAX was 400, is 100"),
    "a name of one's own module": ("def f(s):\n    from MODULE import MAX\n    return {'x': s['x'][:MAX]}",
                                   "map: MODULE.MAX was 400, is 100"),
}


def made(way: str, value: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`f` of a fresh module, beside a fresh module of settings."""
    settings = types.ModuleType("their_settings")
    text = f"MAX = {value}\nOTHER = {value}\ndef cut(x): return x[:MAX]"
    exec(text, settings.__dict__)
    deep = types.ModuleType("their_settings.inner.deep")
    exec(text, deep.__dict__)
    settings.inner = types.ModuleType("their_settings.inner")  # type: ignore[attr-defined]
    settings.inner.deep = deep  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_settings", settings)
    module = types.ModuleType("their_training")
    monkeypatch.setitem(sys.modules, "their_training", module)
    text = WAYS[way][0].replace("VALUE", str(value)).replace("MODULE", "their_settings")
    exec(compile(text, "their_training.py", "exec"), module.__dict__)
    return module.__dict__["f"]


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_value_is_named(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rankstore.build(ROWS, tmp_path / "out", map=made(way, 400, monkeypatch)).close()
    assert capsys.readouterr().err == f"rankstore: {tmp_path / 'out'}: length: items of x\n"
    with rankstore.build(ROWS, tmp_path / "out", map=made(way, 400, monkeypatch)) as ds:  # the same text, run anew
        before = ds.id
    assert "opening the finished dataset of 20 samples; nothing is built" in capsys.readouterr().err
    says = WAYS[way][1].replace("MODULE", "their_settings")
    with pytest.raises(rankstore.ArgumentError) as raised:
        rankstore.build(ROWS, tmp_path / "out", map=made(way, 100, monkeypatch))
    assert f"a finished dataset is here, and {says}" in str(raised.value), raised.value
    with rankstore.build(ROWS, tmp_path / "out", map=made(way, 100, monkeypatch), replace="if_changed") as ds:
        assert (ds.id != before) is (way not in ("a pattern", "a generator of numbers"))
    assert f"replacing the finished dataset: {says}" in capsys.readouterr().err


def test_what_the_code_does_not_use_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("import argparse, their_settings\nargs = argparse.Namespace(most=9, lr=VALUE)\nUNUSED = VALUE\n"
            "def f(s): return {'x': s['x'][:args.most + their_settings.MAX * 0]}")
    functions = []
    for value in (400, 100):
        settings = types.ModuleType("their_settings")
        settings.__dict__.update(MAX=3, OTHER=value)
        monkeypatch.setitem(sys.modules, "their_settings", settings)
        module = types.ModuleType("their_training")
        exec(text.replace("VALUE", str(value)), module.__dict__)
        functions.append(module.__dict__["f"])
    rankstore.build(ROWS, tmp_path / "out", map=functions[0]).close()
    rankstore.build(ROWS, tmp_path / "out", map=functions[1]).close()


def test_what_cannot_be_followed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = threading.Lock()

    def guarded(sample: Any) -> Any:
        with lock:
            return {"x": sample["x"][:5]}

    for _ in range(2):
        rankstore.build(ROWS, tmp_path / "out", map=guarded).close()
    assert capsys.readouterr().err == (
        f"rankstore: {tmp_path / 'out'}: length: items of x\n"
        f"rankstore: {tmp_path / 'out'}: opening the finished dataset of 20 samples; nothing is built (source, options and "
        "code are the same; not compared: map: lock (lock))\n")


def test_secrets_are_not_written_down() -> None:
    scope: dict[str, Any] = {"API_KEY": "hunter2", "NAME": "short", "TEXT": "a" * 50}
    exec("def f(s): return API_KEY, NAME, TEXT", scope)
    found = uses.of(scope["f"]).found
    assert found["NAME"] == "'short'" and "hunter2" not in json.dumps(found) and "aaaa" not in found["TEXT"]


def test_packages_count_by_version() -> None:
    scope: dict[str, Any] = {}
    exec("import numpy, json\nfrom os.path import join\ndef f(s): return numpy.array(json.loads(join('a')))", scope)
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert uses.of(scope["f"]).found | {"": ""} == {
        "": "", "numpy": f"numpy {numpy.__version__}", "json": f"json of {python}", "join": f"join of posixpath of {python}"}


def test_large_circles_end() -> None:
    scope: dict[str, Any] = {}
    exec("class Node:\n    def __init__(self, all): self.all = all\nNODES = []\nNODES.extend(Node(NODES) for i in range(200))\n"
         "def f(s): return NODES", scope)
    assert uses.of(scope["f"]).digest() == uses.of(scope["f"]).digest()


def test_circles_end() -> None:
    scope: dict[str, Any] = {}
    exec("class A: pass\na = A(); a.b = A(); a.b.a = a; L = []; L.append(L)\n"
         "def f(s): return g(s), a, L\ndef g(s): return f(s)", scope)
    found = uses.of(scope["f"]).found
    assert found["a.b.a"] == "the same as a" and found["L[0]"] == "the same as L" and found["g"].startswith("code ")


def test_equal_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import json, re, collections\nfrom rankstore._provenance import code as uses\n"
                                   "S = {'a', 'b', 'c', 1, (2, 'x')}\n"
                                   "D = collections.OrderedDict(a={'x', 'y'}); P = re.compile('a|b')\n"
                                   "def f(s): return S, D, P, {i for i in s if i in {'q', 'r', 's'}}\n"
                                   "print(json.dumps(uses.of(f).found))\n")
    seen = {subprocess.run([sys.executable, str(tmp_path / "t.py")], text=True, capture_output=True, check=True,
                           env={**__import__("os").environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2", "77")}
    assert len(seen) == 1, seen


def test_ranks_may_differ_in_globals_alone() -> None:
    """And in objects of installed packages: ranks have random numbers of their own."""
    def scope(number: int, text: str = "lambda s, a=1: (s, a, N)") -> Any:
        return eval(text, {"N": number, "functools": functools, "numpy": numpy})

    assert uses.own(scope(1)) == uses.own(scope(2))
    for text in ("(lambda r: lambda s: (s, r))(N)", "(lambda g: lambda s: (s, g))(numpy.random.default_rng(N))"):
        assert (uses.own(scope(1, text)) == uses.own(scope(2, text))) == ("numpy" in text)
    assert uses.own(scope(1, "functools.partial(max, N)")) != uses.own(scope(2, "functools.partial(max, N)"))
    assert uses.own(scope(1, "lambda s, a=2: (s, a, N)")) != uses.own(scope(1)) != uses.own(scope(1, "lambda s, a=1: (s, N)"))


@pytest.mark.parametrize(("rule", "says"), [(2, "an earlier version of Rankstore built it, which compares by rule 2, this one by rule 3"),
                                            (4, "a later version of Rankstore built it, which compares by rule 4, this one by rule 3")])
def test_a_dataset_of_another_rule_is_not_compared(tmp_path: Path, rule: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(fingerprint, "RULE", rule)
        rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch)).close()
    with pytest.raises(rankstore.ArgumentError, match=f"a finished dataset is here, and {says}; replace=True"):
        rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch))
    rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch), replace="if_changed").close()
    rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch)).close()


@pytest.mark.parametrize("change, says", [
    ({"length_unit": 2}, "length_unit: was 1, is 2"), ({"where": "n > 3"}, 'where: was null, is "n > 3"'),
    ({"map": None}, "map: it was given, and is not"), ({"filter": bool}, "filter: it was not given")])
def test_an_option_that_differs_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    rows = [{"x": [1, 2], "n": 4}] * 5
    options: dict[str, Any] = {"map": dict}
    rankstore.build(rows, tmp_path / "out", **options).close()
    with pytest.raises(rankstore.ArgumentError) as raised:
        rankstore.build(rows, tmp_path / "out", **{**options, **change})
    assert str(raised.value) == (f'{tmp_path / "out"}: a finished dataset is here, and {says}; replace=True or "if_changed" '
                                 "builds anew, append=True adds to it, reuse=True opens what is there")
    for other, text in ((rows[:4], "it was built from another source"), ([{"x": [1, 3], "n": 4}] * 5, "the contents of the source differ")):
        with pytest.raises(rankstore.ArgumentError, match=text):
            rankstore.build(other, tmp_path / "out", **options)


def test_replace_is_one_of_three(tmp_path: Path) -> None:
    with pytest.raises(rankstore.ArgumentError, match='replace: \'always\'; it is True, False or "if_changed"'):
        rankstore.build(ROWS, tmp_path / "out", replace="always")


VARYING = '''
import datetime, io, logging, os, random, socket, sys, tempfile, time
import numpy, rankstore
LOG, PID, START, NOW, NANO = logging.getLogger("their"), os.getpid(), time.time() - 0.125, datetime.datetime.now(), time.time_ns() | 1
FILE, OTHER, SOCKET = open(os.devnull), tempfile.NamedTemporaryFile(), socket.socket()
NUMBERS, ARRAYS, OLD = random.Random(), numpy.random.default_rng(), numpy.random.RandomState()
COUNT = (i for i in range(os.getpid()))
GROUP = rankstore.current()
MAX = int(sys.argv[1])
def f(s):
    """A docstring."""
    assert MAX, "never"
    for one in (LOG, PID, START, NOW, NANO, FILE, OTHER, SOCKET, NUMBERS, ARRAYS, OLD, COUNT, GROUP):
        pass
    return {"x": s["x"][:MAX]}
rankstore.build([{"x": [1, 2, 3]}] * 5, "out", map=f).close()
'''


def test_what_is_another_value_in_each_run_is_not_compared_and_said_in_one_line(tmp_path: Path) -> None:
    def run(text: str, most: int, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "t.py").write_text(text)
        return subprocess.run([sys.executable, *options, "t.py", str(most)], cwd=tmp_path, text=True, capture_output=True, check=False)

    first = run(VARYING, 3)
    assert first.returncode == 0 and "not compared" not in first.stderr, first.stderr
    for text, *options in ((VARYING,), (VARYING.replace("A docstring.", "Another."),), (VARYING.replace('"""A docstring."""', ""),),
                           (VARYING, "-O"), (VARYING, "-OO"), (VARYING.replace("never", "no"),)):
        again = run(text, 3, *options)
        assert again.returncode == 0 and again.stderr.count("\n") == 1, again.stderr
        assert "not compared: map: LOG (Logger), map: PID (int), map: START (float), map: NOW (datetime), ..." in again.stderr
    assert "map: MAX was 3, is 2" in run(VARYING, 2).stderr
    assert "map: its code differs" in run(VARYING.replace("[:MAX]", "[1:MAX]"), 3, "-O").stderr


def test_counted_columns_hide_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (400, 400, 100):
        with pytest.raises(rankstore.ArgumentError, match="MAX was 400, is 100") if value == 100 else contextlib.nullcontext():
            rankstore.build(ROWS, tmp_path / "out", map=made("a constant", value, monkeypatch), count={"n": ("x", "!=", 0)}).close()


def test_pids_and_times_that_somebody_wrote_down_are_compared(tmp_path: Path) -> None:
    for text in ("MAX = 7", "PID = 7", "WHEN = 1000000000.5", "WHEN = __import__('datetime').datetime(2020, 1, 1, 0, 0, 0, 5)",
                 "R = __import__('numpy').random.default_rng(5)"):
        scope: dict[str, Any] = {}
        exec(f"{text}\ndef f(s): return {text.partition(' ')[0]}", scope)
        assert not uses.of(scope["f"]).unfollowed, text


def test_a_version_stands_for_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch), version="v3").close()
    capsys.readouterr()
    rankstore.build(ROWS, tmp_path / "out", map=made("a class", 100, monkeypatch), version="v3").close()
    assert "(source, options and version are the same)" in capsys.readouterr().err
    for version, says in (("v4", 'version: was "v3", is "v4"'), (None, 'version: was "v3", is null')):
        with pytest.raises(rankstore.ArgumentError, match=says):
            rankstore.build(ROWS, tmp_path / "out", map=made("a constant", 400, monkeypatch), version=version)
    with pytest.raises(rankstore.ArgumentError, match="map: it was given, and is not"):
        rankstore.build(ROWS, tmp_path / "out", version="v3")
    with pytest.raises(rankstore.ArgumentError, match='version: \'\'; it is a text, such as "v3"'):
        rankstore.build(ROWS, tmp_path / "out", version="")


def test_what_a_try_covers_is_compared() -> None:
    """Only the table of exceptions tells these two apart."""
    from rankstore._provenance import bytecode

    def compared(body: str) -> list[object]:
        made: dict[str, object] = {}
        exec(f"def f(s):\n{body}\n    return b", made)
        return bytecode.compared(made["f"].__code__)  # type: ignore[attr-defined]

    inside = "    try:\n        a = int(s)\n        b = int(a)\n    except ValueError:\n        b = -1"
    outside = "    a = int(s)\n    try:\n        b = int(a)\n    except ValueError:\n        b = -1"
    assert compared(inside) == compared(inside) != compared(outside)
