"""What a wheel holds and needs, as CycloneDX 1.6: `sboms/untilt.cdx.json` beside its metadata.

    python tools/sbom.py

The script that draws charts is the one part that is not ours. vl-convert tells the versions of
Vega; of what Vega bundles in turn it tells none. There is no time and no random number in it, so
that a wheel can be built again to the same bytes.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# tools/vega-licences.txt has the texts, `license` in pyproject.toml names the same licences.
BUNDLED = {
    "BSD-3-Clause": "vega vega-embed vega-interpreter vega-lite vega-themes vega-tooltip",
    "ISC": "d3-array d3-color d3-delaunay d3-dispatch d3-dsv d3-force d3-format d3-geo "
    "d3-geo-projection d3-hierarchy d3-interpolate d3-path d3-quadtree d3-scale "
    "d3-scale-chromatic d3-shape d3-time d3-time-format d3-timer delaunator internmap semver "
    "topojson-client",
    "MIT": "fast-json-patch json-stringify-pretty-compact",
    "Unlicense": "robust-predicates",
}


def sbom(version: str) -> dict[str, Any]:
    """The bill of a wheel of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    known = _versions()
    bundled = [
        _component("npm", name, {"id": licence}, version=known.get(name))
        for licence, names in BUNDLED.items()
        for name in names.split()
    ]
    needed = [
        _component("pypi", re.split("[<>=!~ ;]", each)[0], scope="required", description=each)
        for each in project["dependencies"]
    ]
    own = _component("pypi", "untilt", {"id": "Apache-2.0"}, version=version)
    told = {"metadata": {"component": own}, "components": [*bundled, *needed], "dependencies": [
        {"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in (*bundled, *needed)]}
    ]}  # fmt: skip
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(told, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**head, "serialNumber": f"urn:uuid:{number}", **told}


def _component(
    kind: str, name: str, licence: dict[str, str] | None = None, **more: str | None
) -> dict[str, Any]:
    version = more.get("version")
    purl = f"pkg:{kind}/{name}" + (f"@{version}" if version else "")
    given = {key: value for key, value in more.items() if value}
    licences = {} if licence is None else {"licenses": [{"license": licence}]}
    return {"type": "library", "bom-ref": purl, "name": name, "purl": purl, **given, **licences}


def _versions() -> dict[str, str]:
    import vl_convert as vl

    return {
        "vega": vl.get_vega_version(), "vega-embed": vl.get_vega_embed_version(),
        "vega-lite": vl.get_vegalite_versions()[-1], "vega-themes": vl.get_vega_themes_version(),
    }  # fmt: skip


if __name__ == "__main__":
    told = (ROOT / "src" / "untilt" / "_version.py").read_text(encoding="utf8")
    json.dump(sbom(told.split('"')[-2]), sys.stdout, indent=1)
    sys.stdout.write("\n")
