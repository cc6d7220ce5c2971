"""No command writes onto what it reads, nor onto files that somebody wants to keep."""

import inspect
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from untilt.cli.declared import Writes, check_outputs, writes
from untilt.cli.main import app

COMMANDS = {each.callback.__name__: each.callback for each in app.registered_commands}
PARAMETERS = {name: inspect.signature(each).parameters for name, each in COMMANDS.items()}
OUTPUTS = [
    (name, parameter, mark)
    for name, parameters in PARAMETERS.items()
    for parameter in parameters.values()
    if (mark := writes(parameter))
]
# Paths that are read. A new option with a path stands here or is marked as one that is written to.
READ = {"log", "data", "documents", "valid", "config", "path", "source", "ranker", "shown_log",
        "candidate", "calibrate", "token_file", "check", "ubi", "labels"}  # fmt: skip
# What else a command needs before it looks at anything.
NEEDED = {
    "evaluate": ["--bias", "power-law:1"],
    "select": ["--bias", "power-law:1"],
    "score": ["documents.csv"],
}
# Which option takes the input, where it is no argument.
BY_OPTION = {"simulate": "--data"}
LOG = "query_id,session_id,doc_id,position,click,f_a\n1,1,1,1,1,0.5\n1,1,2,2,0,0.2\n"


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def command_line(name: str, read: Path) -> list[object]:
    return [name, *([BY_OPTION[name]] if name in BY_OPTION else []), read, *NEEDED.get(name, [])]


def kind_of(parameter: inspect.Parameter) -> str:
    return str(getattr(parameter.annotation, "__origin__", parameter.annotation))


def test_every_path_is_one_to_read_or_one_to_write():
    for name, parameters in PARAMETERS.items():
        for parameter in parameters.values():
            if "Path" in kind_of(parameter):
                assert (parameter.name in READ) != bool(writes(parameter)), (name, parameter.name)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_helps_names_as_a_place_to_write_is_marked(name):
    for parameter in PARAMETERS[name].values():
        if parameter.name == "out" or parameter.name.endswith("plot"):
            assert writes(parameter), parameter.name


@pytest.mark.parametrize(
    ("name", "option", "mark"), OUTPUTS, ids=[f"{n}-{o.name}" for n, o, _ in OUTPUTS]
)
def test_no_command_writes_onto_what_it_reads(tmp_path, monkeypatch, name, option, mark: Writes):
    if name == "demo":
        pytest.skip("reads nothing")
    monkeypatch.chdir(tmp_path)
    flag = flag_of(option)
    places = mark.names or (("work/log.parquet", "tables/a.csv") if name == "run" else ("",))
    for place in places:
        given = tmp_path / "out.json" if place == "" else tmp_path / "out"
        read = given / f"{place}x" if place.endswith("/") else given / place
        read.parent.mkdir(parents=True, exist_ok=True)
        read.write_text(LOG)
        if name == "run":
            (tmp_path / "out" / "work" / "untilt-run.txt").touch()
        said = call(*command_line(name, read), flag, given)
        assert said.exit_code == 2, said.stdout
        assert "the results would go to" in said.stderr
        assert "Traceback" not in said.stderr
        assert read.read_text() == LOG


def test_what_is_read_is_told_from_words_that_are_no_paths(tmp_path, monkeypatch):
    """A method has its name, whatever lies in the folder."""
    monkeypatch.chdir(tmp_path)
    Path("prs").mkdir()
    given = {"data": Path("log.csv"), "out": Path("prs/ranker.untilt"), "method": "prs"}
    check_outputs(PARAMETERS["train"].values(), given)


def test_rankers_with_a_name_before_them_are_read_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.json").touch()
    said = call("evaluate", "log.csv", "--ranker", "new=a.json", "--plot", "a.json")
    assert said.exit_code == 2
    assert "the results would go to a.json" in said.stderr


def test_the_page_of_a_run_may_lie_beside_its_figures(tmp_path):
    parameters = PARAMETERS["report"].values()
    (tmp_path / "figures.json").touch()
    check_outputs(parameters, {"source": tmp_path, "out": tmp_path / "other.html"})
    with pytest.raises(ValueError, match="is what is read"):
        check_outputs(
            parameters, {"source": tmp_path / "figures.json", "out": tmp_path / "figures.json"}
        )


# Files that lie there already.


def sizes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


SIMULATE = ["simulate", "--queries", 30, "--features", 4, "--sessions", 300]


def test_a_simulation_is_replaced_with_force_alone_and_all_of_it(tmp_path):
    out = tmp_path / "made"
    assert call(*SIMULATE, "--out", out).exit_code == 0
    (out / "notes.md").write_text("somebody's")
    before = sizes(out)
    said = call(*SIMULATE, "--seed", 1, "--out", out)
    assert said.exit_code == 2
    assert "already holds clicks.parquet" in said.stderr
    assert "--force" in said.stderr
    assert sizes(out) == before
    assert call(*SIMULATE, "--seed", 1, "--out", out, "--force").exit_code == 0
    after = sizes(out)
    assert {name for name in before if after[name] == before[name]} <= {"notes.md", "bias.json"}
    assert set(after) == set(before)


def test_one_file_of_a_simulations_name_is_not_replaced(tmp_path):
    (tmp_path / "clicks.parquet").write_text("somebody's")
    assert call(*SIMULATE, "--out", tmp_path).exit_code == 2
    assert sizes(tmp_path) == {"clicks.parquet": b"somebody's"}


def test_a_simulation_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    out = tmp_path / "made"
    assert call(*SIMULATE, "--out", out).exit_code == 0
    before = sizes(out)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("untilt.data.letor.write_letor.write_letor", full)
    said = call(*SIMULATE, "--seed", 1, "--out", out, "--force")
    assert said.exit_code == 2
    assert "No space left on device. Make room there" in said.stderr
    assert sizes(out) == before


def test_parts_are_replaced_with_force_alone(tmp_path):
    log = tmp_path / "log.csv"
    rows = [f"{q},{q},{d},{d},{d % 2}" for q in range(1, 30) for d in range(1, 4)]
    log.write_text("\n".join(["query_id,session_id,doc_id,position,click", *rows]))
    split = ["split", log, "--out", tmp_path / "parts"]
    assert call(*split).exit_code == 0
    before = sizes(tmp_path / "parts")
    said = call(*split, "--seed", 1)
    assert said.exit_code == 2
    assert "already holds train.parquet, test.parquet" in said.stderr
    assert sizes(tmp_path / "parts") == before
    assert call(*split, "--seed", 1, "--force").exit_code == 0
    assert sizes(tmp_path / "parts") != before


def test_a_page_of_somebody_is_no_page_of_an_experiment(tmp_path):
    (tmp_path / "003-quick.md").write_text("somebody's")
    said = call("reproduce", "003-table-2", "--quick", "--out", tmp_path)
    assert said.exit_code == 2
    assert "already holds 003-quick.md" in said.stderr
    assert sizes(tmp_path) == {"003-quick.md": b"somebody's"}


def test_the_program_has_these_commands():
    assert set(typer.main.get_command(app).commands) == set(COMMANDS)  # type: ignore[attr-defined]


def flag_of(option) -> str:
    """As it is typed: the first name that it was given, or its parameter's."""
    marks = option.annotation.__metadata__
    names = [each for mark in marks for each in _names(mark) if each.startswith("--")]
    return names[0] if names else "--" + option.name.replace("_", "-")


def _names(mark) -> tuple[str, ...]:
    """Typer keeps the first name apart, as the default."""
    given = (getattr(mark, "default", None), *(getattr(mark, "param_decls", None) or ()))
    return tuple(each for each in given if isinstance(each, str))
