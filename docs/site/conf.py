"""How `make docs` builds the site: the pages as they stand, and a reference from the docstrings.

The pages are plain Markdown that reads well where it lies, so nothing in them is for Sphinx alone:
what Sphinx needs besides (the tree of pages, the reference, the bibliography) is made here.
Warnings are errors: a link that leads nowhere fails the build.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import docstring_text
import reference_pages
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from untilt import __version__

ROOT = Path(__file__).resolve().parents[2]

project, author, copyright = "untilt", "the untilt developers", "the untilt developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The folder of sources is the repository, so that links to README.md and CHANGELOG.md hold.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", f"{reference_pages.FOLDER}/**"]
nitpicky = True
# Types in signatures are NumPy's, LightGBM's or private: there is no page to link them to.
nitpick_ignore_regex = [(r"py:.*", r".*")]
myst_heading_anchors = 3
# Names in single backticks are code in this project's docstrings.
default_role = "code"
highlight_language = "none"  # what is indented in a docstring is a formula
# What rankers and estimators share is shown with each; scikit-learn's and Python's own is not.
FOREIGN_BASES = "BaseEstimator,BaseException,tuple,dict,object"
autodoc_default_options = {"members": True, "inherited-members": FOREIGN_BASES}
# Most papers are cited on the pages, which this does not see; tests/test_docs.py checks all keys.
suppress_warnings = ["ref.citation"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
smartquotes = False  # `--out` stays two dashes
html_theme = "furo"
html_title = f"untilt {release}"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_math_renderer = "mathml"


def pages_in_order(index: str) -> list[str]:
    """The pages that the index names, in its order."""
    named = re.findall(r"\]\(([^)#]+)\.md[)#]", index)
    return [
        name.removeprefix("../") if name.startswith("../") else f"docs/{name}" for name in named
    ]


# Pages of this folder hang on the page about them, not on the index.
BRANCHES = ("docs/reproduced/",)


def add_tree(_app: object, page: str, source: list[str]) -> None:
    """The tree of pages, which the margin shows: a part for each step of the index."""
    if page == root_doc:
        source[0] += "".join(_parts(source[0]))
    elif page == "docs/reproduce":
        source[0] += tree(["docs/reproduced/index"])
    elif page == "docs/reproduced/index":
        source[0] += tree([name for name in pages_in("reproduced") if name != page])


def _parts(index: str) -> Iterator[str]:
    """A tree with a caption for each heading of the index; a page stands where it comes first."""
    seen: set[str] = set()
    for part in index.split("\n## ")[1:]:
        named = [each for each in pages_in_order(part) if not each.startswith(BRANCHES)]
        new = [each for each in named if each not in seen]
        seen.update(new)
        title = part.partition("\n")[0]
        last = [f"{reference_pages.FOLDER}/index"] if title == "Reference" else []
        yield tree([*last, *new], title)


def link_papers(_app, page: str, source: list[str]) -> None:
    """Keys of papers, `[key]_` or [key] in the text, lead to the bibliography."""
    if page.startswith(("docs/", "README")) and not page.startswith(reference_pages.FOLDER):
        known = "|".join(reference_pages.keys(ROOT))
        cited = re.compile(rf"`\[({known})\]_`|(?<!`)\[({known})\](?![_(`])")
        target = f"/{reference_pages.FOLDER}/bibliography.rst"
        source[0] = cited.sub(lambda found: f"[{found[1] or found[2]}]({target})", source[0])


def pages_in(folder: str) -> list[str]:
    """All pages of a folder under docs."""
    return [f"docs/{folder}/{path.stem}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]


def tree(pages: list[str], caption: str = "") -> str:
    """The directive that hangs pages under this one."""
    rows = "\n".join(f"/{page}" for page in dict.fromkeys(pages))
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"\n\n```{{toctree}}\n{options}\n{rows}\n```\n"


def add_front_door(app, problem: Exception | None) -> None:
    """index.html at the top of the site leads to the index of the documentation."""
    if problem is None and app.builder.name == "html":
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf8")


def skip_foreign(_app, _what, _name: str, thing, skip: bool, _options) -> bool:
    """scikit-learn adds methods such as set_fit_request to every estimator: nothing of ours."""
    return skip or str(getattr(thing, "__module__", "")).startswith("sklearn")


def show_math(writer, node) -> None:
    """A formula as MathML, which browsers show by themselves: no page fetches anything."""
    writer.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app) -> None:
    """Called by Sphinx."""
    reference_pages.write(ROOT)
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
    app.connect("source-read", add_tree)
    app.connect("source-read", link_papers)
    app.connect("autodoc-process-docstring", docstring_text.to_rst)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("build-finished", add_front_door)
