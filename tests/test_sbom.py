"""The bill of a wheel: all that it bundles and needs, with licences whose texts it carries."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("vl_convert")
ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "sbom.py"))
TITLES = {
    "BSD-3-Clause": "BSD 3-Clause License:", "ISC": "ISC License:", "MIT": "MIT License:",
    "Unlicense": "The Unlicense:",
}  # fmt: skip


def test_the_bill_has_what_is_bundled_and_what_is_needed():
    bill = TOOL["sbom"]("1.2.3")
    assert json.dumps(bill) == json.dumps(TOOL["sbom"]("1.2.3"))
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/untilt@1.2.3"
    named = {each["purl"]: each for each in bill["components"]}
    assert len(named) == len(bill["components"])
    assert set(bill["dependencies"][0]["dependsOn"]) == {e["bom-ref"] for e in named.values()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]}
    assert {purl.partition("/")[2] for purl in named if "pypi/" in purl} == needed
    vega = next(each for purl, each in named.items() if purl.startswith("pkg:npm/vega@"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", vega["version"])


def test_licences_are_named_once_and_their_texts_go_along():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == " AND ".join(["Apache-2.0", *TOOL["BUNDLED"]])
    text = (ROOT / "tools" / "vega-licences.txt").read_text()
    assert "tools/vega-licences.txt" in project["license-files"]
    assert TITLES.keys() == TOOL["BUNDLED"].keys()
    for licence, title in TITLES.items():
        assert title in text, licence
    for name in " ".join(TOOL["BUNDLED"].values()).split():
        family = re.sub(r"^(d3|vega)-.*", r"\1-*", name)
        known = {"vega": "Vega,", "vega-*": "vega-*", "internmap": "Mike Bostock"}
        assert known.get(family, family) in text, name
