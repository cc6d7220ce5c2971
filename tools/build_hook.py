"""Puts the script that draws charts into the wheel, and the bill of what is in it.

So an install needs no engine to draw.

The script is Vega, Vega-Lite and Vega-Embed as vl-convert bundles them, with the licences of what
is in it (`vega-licences.txt`) at its head. It is made when a wheel is built and stands in no folder
of the source: a checkout asks vl-convert, which the extra `dev` brings.
"""

import json
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CODE = "window.vegaEmbed = vegaEmbed;"


class VegaScript(BuildHookInterface):  # type: ignore[type-arg]
    """Adds untilt/charts/vega.js and sboms/untilt.cdx.json to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the script, and name it among the files of the wheel."""
        if version == "editable":
            return
        import vl_convert

        self._folder = TemporaryDirectory()
        script = Path(self._folder.name, "vega.js")
        notice = (Path(self.root) / "tools" / "vega-licences.txt").read_text(encoding="utf8")
        bundle = vl_convert.javascript_bundle(CODE)
        script.write_text(f"/*!\n{notice}*/\n{bundle}", encoding="utf8")
        build_data["force_include"][str(script)] = "untilt/charts/vega.js"
        bill = Path(self._folder.name, "untilt.cdx.json")
        sbom = runpy.run_path(str(Path(self.root) / "tools" / "sbom.py"))["sbom"]
        bill.write_text(json.dumps(sbom(self.metadata.version), indent=1) + "\n", encoding="utf8")
        build_data["sbom_files"].append(str(bill))
