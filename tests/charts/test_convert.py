"""Charts under limits and after a fork: drawn elsewhere, or an error; the process goes on."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from untilt.charts import convert

SPEC = {"data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": {"x": {"field": "a"}}}
CALLS = [("vegalite_to_svg", [SPEC], {}), ("vegalite_to_png", [SPEC], {})]

LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from untilt.charts import convert
try:
    convert.converted([("vegalite_to_svg", [{SPEC!r}], {{}})])
except convert.ChartsNotDrawnError as error:
    print(error)
from untilt.report.page import _drawn
from types import SimpleNamespace
assert _drawn([SimpleNamespace(name="one", spec={SPEC!r})])[1] == {{}}
print("alive")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited on Linux")
def test_a_limit_of_addresses_costs_the_charts_and_not_the_process():
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ulimit -v" in done.stdout
    assert done.stdout.endswith("alive\n")


def test_after_a_fork_an_interpreter_of_its_own_converts(monkeypatch):
    svg, png = convert.converted(CALLS)
    process = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: process + 1)
    nothing = ModuleType("vl_convert")  # installed, and must not be asked here
    nothing.__spec__ = ModuleSpec("vl_convert", None)
    monkeypatch.setitem(sys.modules, "vl_convert", nothing)
    outside = convert.converted(CALLS)
    assert png == outside[1]
    assert svg.startswith("<svg")
    assert outside[0].startswith("<svg")


@pytest.mark.parametrize(
    "text", ["".join(map(chr, range(0x300))), "\ud800 \ufffe \uffff \u2028\U0001ffff"]
)
def test_no_text_ends_the_process(text):
    """Names of features, rankers and labels are titles, fields and values of charts."""
    title = {"title": text, "type": "nominal", "field": "b"}
    spec = {"title": text, "data": {"values": [{"a": 1, "b": text, text: 2}]}, "mark": "bar",
            "encoding": {"x": title, "y": {"field": "a", "title": [text, text]}}}  # fmt: skip
    calls = [("vegalite_to_svg", [spec], {}), ("vegalite_to_png", [spec], {})]
    code = f"from untilt.charts import convert; print(len(convert.converted({calls!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr[-2000:]
