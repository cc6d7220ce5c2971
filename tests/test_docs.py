"""What the documentation shows runs, and what it points at is there."""

import doctest
import gzip
import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
import typer
from tests import click_samples
from tests.forked import Forks

import untilt
from untilt.cli.main import app
from untilt.simulation import protocols

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "docs" / "reference"  # by `make docs`, not kept
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if not page.is_relative_to(BUILT)
)
REPRODUCED = ROOT / "docs" / "reproduced"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
README = (ROOT / "README.md").read_text(encoding="utf8")


CLICKS = """\
query_id,session_id,doc_id,position,click,f_a,f_b,bm25,price,text_score,device,hour
1,1,10,1,1,0.5,1,2.5,9,0.1,phone,9
1,1,11,2,0,0.7,0,1.5,8,0.2,phone,9
2,2,20,1,0,0.1,1,3.5,7,0.3,desktop,21
"""
DOCUMENTS = "query_id,doc_id,f_a\n1,10,0.5\n1,11,0.7\n2,20,0.1\n2,21,0.2\n"
SEARCHES = """\
srch_id,prop_id,position,click_bool,booking_bool,random_bool
1,10,1,1,1,0
1,11,2,0,0,0
2,10,1,0,0,1
"""


def picture(name: str):
    """A picture's module; what it imports lies beside it."""
    folder = ROOT / "docs" / "pictures"
    sys.path.append(str(folder))
    try:
        spec = importlib.util.spec_from_file_location(f"picture_{name}", folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def blocks(text: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [code for kind, code in found if kind == language]


# ---- code


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that pages speak of: a log, its documents, and foreign ones."""
    place = tmp_path_factory.mktemp("files")
    (place / "clicks.csv").write_text(CLICKS)
    (place / "documents.csv").write_text(DOCUMENTS)
    for name in ("clicks", "documents"):
        table = duckdb.read_csv(str(place / f"{name}.csv"))
        table.write_parquet(str(place / f"{name}.parquet"))
        (place / f"{name}.csv").unlink()
    (place / "searches.csv.gz").write_bytes(gzip.compress(SEARCHES.encode()))
    for write in click_samples.WRITERS.values():
        write(place)
    return place


@pytest.fixture
def folder(files, tmp_path):
    """A folder of one's own with these files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    return tmp_path


# Run before the code of a page: no example may judge a ranker by the queries it was trained on.
NEVER_IN_SAMPLE = """
import untilt.evaluation.judged
from untilt.evaluation.judged import overlap_facts

def refusing(known):
    facts = overlap_facts(known)
    assert all(fact.code != "estimate.trained-queries" for fact in facts), facts
    return facts

untilt.evaluation.judged.overlap_facts = refusing
import untilt.selection.select
untilt.selection.select.overlap_facts = refusing
"""


# Pages that show what their code prints are run by tests/test_notebooks.py.
SHOWN = {ROOT / "docs" / "start.md", *(ROOT / "docs" / "cookbooks").glob("*.md")}
# Small versions of long measurements.
SLOW_PAGES = {"others.md"}
RUN = [
    pytest.param(page, marks=pytest.mark.slow if page.name in SLOW_PAGES else (), id=page.name)
    for page in PAGES
    if page not in SHOWN
]


# What a page simulates and trains, made smaller: by how much each number is divided, and from
# where down it stays. That the code runs does not depend on it; the curves that it prints do.
SMALLER = {
    "n_sessions": (10, 5_000), "sessions_per_query": (5, 20), "n_trees": (5, 10), "epochs": (5, 2),
}  # fmt: skip


def smaller(code: str) -> str:
    """The same code with fewer sessions, trees and epochs."""

    def less(found: re.Match) -> str:
        times, least = SMALLER[found["name"]]
        number = int(found["number"])
        return found["before"] + str(min(number, max(least, number // times)))

    names = "|".join(SMALLER)
    pattern = rf"""(?P<before>\b(?P<name>{names})"?\s?[=:]\s?)(?P<number>\d[\d_]*)"""
    return re.sub(pattern, less, code)


@pytest.fixture(scope="module")
def forks():
    started = Forks()
    yield started
    started.close()


@pytest.mark.parametrize("size", ["smaller", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", RUN)
def test_python_on_a_page_runs(page, size, folder, forks):
    """The blocks of one page run one after the other, as a reader would type them."""
    code = "\n".join(blocks(page.read_text(encoding="utf8"), "python"))
    if size == "smaller":
        code = smaller(code)
    if not code:
        pytest.skip("no Python on this page")
    if "make_pipeline" in code and tuple(map(int, version("scikit-learn").split(".")[:2])) < (1, 8):
        pytest.skip("the page says that a search over a pipeline needs scikit-learn 1.8")
    if "mlflow" in code:
        pytest.importorskip("mlflow")
    warned = (
        "default" if "mlflow" in code else "error"
    )  # what MLflow and its store warn of is theirs
    judges = any(each in code for each in ("evaluate(", "estimate(", "select("))
    run = forks.run((NEVER_IN_SAMPLE if judges else "") + code, cwd=folder, warned=warned)
    assert run.returncode == 0, run.stderr


def test_a_page_is_made_smaller_in_its_numbers_alone():
    code = """
    made = ut.simulate(judged, "dla", n_sessions=200_000, seed=0)
    few = ut.simulate(judged, n_sessions=300)
    many = ut.simulate(judged, sessions_per_query=60)
    small = {"widths": (32,), "epochs": 40}
    """
    assert (
        smaller(code)
        == """
    made = ut.simulate(judged, "dla", n_sessions=20000, seed=0)
    few = ut.simulate(judged, n_sessions=300)
    many = ut.simulate(judged, sessions_per_query=20)
    small = {"widths": (32,), "epochs": 8}
    """
    )


def test_pages_hand_over_rankers_not_their_scores():
    """Scores know nothing of the queries behind them; a ranker does, and is checked above."""
    for page in PAGES:
        code = "\n".join(blocks(page.read_text(encoding="utf8"), "python"))
        models = set(re.findall(r"(\w+) = (?:lightgbm|xgboost)\.train\(", code))
        scored = set(re.findall(r"(?:evaluate|estimate)\(\w+, (\w+)\.predict\(", code))
        assert scored <= models, f"{page.name}: {scored - models}"


def example_commands() -> list[str]:
    """The commands in the help texts of the command line."""
    commands = []
    for path in sorted((ROOT / "src/untilt/cli").glob("*.py")):
        for found in re.findall(r"\[bold\](untilt .*?)\[/bold\]", path.read_text(), re.DOTALL):
            commands.append(" ".join(found.split()))
    return commands


def test_help_texts_evaluate_on_a_part_that_was_split_off():
    """Whatever log an example trains on, no example evaluates on."""
    words = [shlex.split(command) for command in example_commands()]
    trained_on = {each[2] for each in words if each[1] == "train"}
    judged_by = {each[2] for each in words if each[1] == "evaluate"}
    assert trained_on
    assert judged_by
    assert not trained_on & judged_by


def run_command(forks: Forks, words: list[str], cwd: Path) -> str:
    """What a command says, in a fork; it must end well."""
    code = f"import sys; sys.argv = {words}; from untilt.cli.main import main; main()"
    done = forks.run(code, cwd=cwd, warned="default")
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
    return done.stderr  # and what goes to the standard output


def test_split_train_evaluate_as_the_help_texts_say(tmp_path, forks):
    """The three examples, one after the other, on a log of the names that they have."""

    def run(command: str) -> str:
        return run_command(forks, shlex.split(command), tmp_path)

    run("untilt simulate --out . --queries 60 --sessions 3000")
    chosen = [
        next(each for each in example_commands() if each.startswith(f"untilt {name}"))
        for name in ("split", "train", "evaluate")
    ]
    for command in chosen[:2]:
        run(command + (" --trees 10" if "train" in command.split()[1] else ""))
    assert "trained on" not in run(chosen[2])
    # The same on the whole log says what is wrong.
    whole = chosen[2].replace("parts/test.", "clicks.").replace("parts/test-d", "d")
    assert "trained on" in run(whole)


def test_the_readme_shows_the_quickstart():
    """The script is the README's block, which runs above."""
    quickstart = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf8")
    code = quickstart[quickstart.index("import untilt") :]
    assert code in blocks(README, "python")
    assert len(code.splitlines()) <= 25


@pytest.mark.parametrize("size", ["smaller", pytest.param("whole", marks=pytest.mark.slow)])
def test_commands_in_the_readme_run(size, tmp_path, forks):
    """On a simulated log with the names that the README has."""
    lines = [line for block in blocks(README, "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("untilt ")]
    assert commands
    sessions, trees = ("4000", ["--trees", "10"]) if size == "smaller" else ("20000", [])
    made = f"untilt simulate --out . --protocol harvest --queries 300 --sessions {sessions}"
    run_command(forks, shlex.split(made), tmp_path)
    for command in commands:
        run_command(forks, [*command, *trees], tmp_path)


def commands_of(page: Path) -> list[list[str]]:
    """The commands of untilt on a page, in its blocks and in its sentences, as words."""
    text = page.read_text(encoding="utf8")
    shown = [block for kind in ("sh", "console", "bash", "") for block in blocks(text, kind)]
    lines = [re.sub(r"^\s*(\$ )?", "", line) for line in "\n".join(shown).splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    lines += re.findall(r"`(untilt [^`]+)`|^ {4}(untilt .*)$", prose, flags=re.M)
    flat = [each for line in lines for each in ([line] if isinstance(line, str) else line)]
    return [shlex.split(line, comments=True) for line in flat if line.startswith("untilt ")]


def test_commands_and_options_that_are_named_exist():
    commands = vars(typer.main.get_command(app))["commands"]
    known = {
        name: {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for name, command in commands.items()
    }
    named = [words[1:] for page in PAGES for words in commands_of(page)]
    assert {words[0] for words in named if words[0][0] != "-"} - {"COMMAND"} <= set(known)
    for command, *words in named:
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known.get(command, options) | {"--help"}, shlex.join([command, *words])


def test_every_extra_is_on_the_page_about_the_install():
    """Those for people who use it; the others are for those who work on it."""
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf8")
    table = page.partition("## What is an extra")[2]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, flags=re.M)) == extras - {
        "dev",
        "docs",
        "bench",
        "sources",
    }


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    lines = re.findall(r"^([a-z -]+):", makefile, flags=re.MULTILINE)
    targets = {target for line in lines for target in line.split()}
    code = re.compile(r"`make ([a-z-]+)`|^(?: {4})?make ([a-z-]+)", flags=re.MULTILINE)
    named = {
        name
        for page in PAGES
        for found in code.findall(page.read_text(encoding="utf8"))
        for name in found
        if name
    }
    assert {"demo", "test"} <= named <= targets


def modules_with_doctests() -> list[str]:
    return [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in SOURCES
        if ">>> " in path.read_text(encoding="utf8")
    ]


@pytest.mark.parametrize("name", modules_with_doctests())
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# ---- links and citations


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    broken = [
        target
        for target in targets
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (page.parent / target).exists()
    ]
    assert broken == []


INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf8")


def test_every_page_can_be_found_from_the_index():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "cookbooks").glob("*.md")]
    names = {page.relative_to(ROOT / "docs").as_posix() for page in pages} - {"index.md"}
    assert {page for page in names if f"({page})" not in INDEX} == set()


def test_the_index_is_a_path():
    """Its headings in their order, and a page once, so that the margin of the site is the same."""
    assert re.findall(r"^## (.*)$", INDEX, flags=re.M) == [
        "Start",
        "Understand",
        "Choose",
        "Deploy",
        "Reference",
    ]
    named = re.findall(r"\]\(([^)#]+\.md)\)", INDEX)
    assert sorted(named) == sorted(set(named))


# Made by a program, or of another kind: the index, and results of `untilt reproduce`.
WITHOUT_OPENING = {"index.md", *(path.name for path in REPRODUCED.glob("*.md"))}
OPENED = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]


@pytest.mark.parametrize(
    "page",
    [page for page in OPENED if page.name not in WITHOUT_OPENING],
    ids=lambda page: page.name,
)
def test_a_page_opens_with_its_question_and_an_example(page):
    """Before the first heading; a page of reasons alone (decisions.md) has nothing to run."""
    opening = page.read_text(encoding="utf8").partition("\n## ")[0]
    prose = re.sub(r"^```.*?^```$", "", opening, flags=re.M | re.S)
    assert "?" in prose
    assert re.search(r"^```(python|sh)$", opening, flags=re.M) or page.name == "decisions.md"


# What people read, and what `untilt reproduce` writes.
MOST_WORDS = {False: 51_000, True: 9_000}


@pytest.mark.parametrize("reproduced", MOST_WORDS)
def test_the_documentation_stays_short(reproduced):
    words = {
        page.relative_to(ROOT).as_posix(): len(page.read_text(encoding="utf8").split())
        for page in PAGES
        if page.is_relative_to(REPRODUCED) == reproduced
    }
    assert sum(words.values()) <= MOST_WORDS[reproduced], sorted(words.items(), key=lambda x: x[1])


def test_charts_of_choice_name_what_exists():
    """The boxes of the three ladders of position-bias.md, methods.md and rankers.md."""
    for name in ("estimator", "weighting", "ranker"):
        for step in picture(f"choose_{name}").STEPS:
            assert all(hasattr(untilt, each) for each in step.names), step
            assert all(each in step.take for each in step.names), step


@pytest.mark.parametrize(
    ("box", "protocol"),
    [
        (0, protocols.Shuffle(share=0.5)),
        (1, protocols.Swap(share=0.5)),
        (1, protocols.Swap(share=0.5, adjacent=True)),
        (3, protocols.Harvest()),
        (4, protocols.DLA()),
    ],
)
def test_the_chart_of_estimators_says_what_the_audit_advises(box, protocol):
    judged = untilt.make_judged(60, 4, mean_docs=8, seed=0)
    log = untilt.simulate(judged, protocol, n_sessions=4_000, depth=5, seed=0).log
    advised = untilt.audit(log).advice.estimator
    assert advised in picture("choose_estimator").STEPS[box].names


def test_the_site_has_every_command_and_every_measured_table():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    pages = generate.site_pages()
    named = set(re.findall(r"^## `untilt ([a-z]+)", pages["command-line.md"], flags=re.M))
    assert named == {each.callback.__name__ for each in app.registered_commands}
    tables = pages["measured.md"].split("\n## ")[1:]
    assert len(tables) == len(generate.MEASURED)
    assert all(len(re.findall(r"^\|", table, flags=re.M)) > 2 for table in tables)


def test_every_drawn_picture_is_shown():
    """What `make pictures` draws is there and on a page."""
    scripts = (ROOT / "docs" / "pictures").glob("[a-z]*.py")
    drawn = {f"{path.stem.replace('_', '-')}.svg" for path in scripts}
    shown = {
        Path(target).name
        for page in PAGES
        for target in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text(encoding="utf8"))
    }
    there = {path.name for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert drawn
    assert drawn <= there & shown


@pytest.mark.parametrize("builder", ["dummy", pytest.param("html", marks=pytest.mark.slow)])
def test_the_site_is_built_without_a_warning(builder, tmp_path):
    """As `make docs` does: headings that links name are there, and docstrings are well formed.

    The dummy resolves every reference and writes no page, half of the time.
    """
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q", "-E"]
    command += ["-c", "docs/site", "-d", str(tmp_path / "trees"), ".", str(tmp_path / "site")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    if builder == "dummy":
        return
    reference = (tmp_path / "site" / "docs" / "reference" / "rankers.html").read_text("utf8")
    assert 'id="untilt.LambdaMART"' in reference
    fetched = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?https?:""")
    outside = [page for page in tmp_path.rglob("*.html") if fetched.search(page.read_text("utf8"))]
    assert outside == []


def bibliography() -> list[str]:
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf8")
    return re.findall(r"^@\w+\{([^,]+),$", text, flags=re.MULTILINE)


def test_every_reference_stands_once():
    keys = bibliography()
    assert len(keys) > 30
    assert len(keys) == len(set(keys))


CITATION = re.compile(
    r"""\[(\w+)\]_(?!\w)          # a docstring's: [key]_
    | \[([a-z]+\d{4}[a-z]*)\]     # a page's: [key]
    | \breference\ ?=\ ?"(\w+)"   # of a method's record or an experiment's file
    """,
    re.VERBOSE,
)


def citations() -> set[tuple[str, str]]:
    """(key, name of the file that cites it)."""
    experiments = sorted((ROOT / "src").rglob("*.toml"))
    return {
        (next(filter(None, groups)), path.name)
        for path in [*SOURCES, *PAGES, *experiments]
        for groups in CITATION.findall(path.read_text(encoding="utf8"))
    }


def test_every_citation_has_its_reference():
    known = {*bibliography(), "key"}  # [key]_ stands for any of them
    assert {pair for pair in citations() if pair[0] not in known} == set()


def test_every_reference_is_cited():
    assert set(bibliography()) - {key for key, _ in citations()} == set()
