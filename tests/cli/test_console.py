"""People get sentences and tables, machines one JSON object."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from untilt.cli.console import Output, plain, speaking
from untilt.cli.main import app
from untilt.data.read.options import columns_of
from untilt.errors import OptionError
from untilt.facts import note, phrase
from untilt.views import Figure, Section, Table, bar, html, markdown, text


def test_people_read_stdout_and_nothing_is_recorded_there(capsys):
    with speaking(as_json=False, verbose=False) as out:
        out.say("a [b] c")
        out.heading("numbers")
        out.table(("name", "value", ""), [("clicks", "1,000", "██")])
        out.detail("only with -v")
        out.record(clicks=1000)
    stdout, stderr = capsys.readouterr()
    assert stderr == ""
    assert stdout.splitlines() == ["a [b] c", "", "numbers", *stdout.splitlines()[3:]]
    assert [line.split() for line in stdout.splitlines()[3:]] == [
        ["name", "value"],
        ["clicks", "1,000", "██"],
    ]


def test_tables_and_figures_without_rows_are_left_out():
    empty = Table(("pair", "evidence"), (), "Pairs that share documents")
    graph = Figure("graph", "Pairs", dict, "no pairs", empty)
    section = Section("log", "The log", ("No pair.",), figures=(graph,), tables=(empty,))
    assert text([section]) == "The log\n  No pair."
    assert markdown([section]) == "## The log\n\nNo pair."
    assert html([section]) == "<h4>The log</h4><p>No pair.</p>"


def test_machines_get_one_object_and_nothing_else(capsys):
    with speaking(as_json=True, verbose=True) as out:
        out.say("for people")
        out.table(("name",), [("x",)])
        out.detail("reading")
        out.record(clicks=np.int64(3), rate=np.array([0.5, np.nan]))
    stdout, stderr = capsys.readouterr()
    assert json.loads(stdout) == {"clicks": 3, "rate": [0.5, None]}
    assert "reading" in stderr


def test_a_failed_command_prints_no_object(capsys):
    def fail() -> None:
        with speaking(as_json=True, verbose=False) as out:
            out.record(clicks=3)
            raise OptionError("no")

    with pytest.raises(OptionError):
        fail()
    assert capsys.readouterr().out == ""


def test_plain_values_are_what_json_knows(tmp_path):
    value = {
        "path": tmp_path,
        "names": ("a", "b"),
        1: {"inf": float("inf"), "nested": [np.float32(0.5), np.bool_(True), None]},
    }
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "path": str(tmp_path),
        "names": ["a", "b"],
        "1": {"inf": None, "nested": [0.5, True, None]},
    }


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(1.0, "████"), (0.5, "██"), (1 / 32, "▏"), (7 / 32, "▉"), (0.0, ""), (float("nan"), "")],
)
def test_bars_have_the_length_of_their_value(value, drawn):
    assert bar(value, 1.0, width=4) == drawn


def test_bars_of_nothing_are_empty():
    assert bar(0.0, 0.0) == ""


def test_columns_are_a_mapping():
    assert columns_of(["query_id=srch_id", "click=a=b"]) == {
        "query_id": "srch_id",
        "click": "a=b",
    }
    assert columns_of([]) == {}
    assert columns_of(["count="]) == {"count": None}  # read_log leaves it out


@pytest.mark.parametrize("pair", ["query_id", "=x", "="])
def test_a_column_without_both_names_is_refused(pair):
    with pytest.raises(OptionError, match=f"NAME=COLUMN.*{pair!r}"):
        columns_of([pair])


def test_a_column_named_twice_is_refused():
    with pytest.raises(OptionError, match="'click' twice: 'a' and 'b'"):
        columns_of(["click=a", "click=b"])


# ---- narrow terminals

WIDE = (
    ("system", "what it is", "95% interval", ""),
    [
        (
            "a-ranker-with-a-long-name",
            "boosted trees on pairs of documents",
            "[0.1234, 0.5678]",
            "█" * 30,
        ),
        ("other", "as it was", "[0.0001, 0.0002]", "█" * 3),
    ],
)


@pytest.mark.parametrize("width", [100, 80, 60, 50, 30])
def test_no_word_of_a_table_is_cut(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    Output(as_json=False, verbose=False).table(*WIDE)
    printed = capsys.readouterr().out
    assert "…" not in printed
    for cell in (cell for row in WIDE[1] for cell in row[:3]):
        assert all(word in printed.split() for word in cell.split()), (cell, printed)
    if width >= 50:  # below, rows are stacked, and the longest word decides
        assert max(map(len, printed.splitlines())) <= width


def test_keys_and_values_wrap_and_long_words_stay_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/path/" + "x" * 60
    Output(as_json=False, verbose=False).table(("", ""), [("written", path), ("trees", "3")])
    assert path in capsys.readouterr().out.split()


def test_a_command_stands_on_a_line_of_its_own(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    command = (
        "untilt bias 'a long path/to the log.parquet' --column query_id=search --method all-pairs"
    )
    Output(as_json=False, verbose=False).points(
        [f"On the command line: `{command}`", f"swap positions; `{command}` says how many"]
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines.count(command) == 2
    assert "- swap positions; `untilt bias` says" in lines


def test_a_finding_becomes_a_whole_sentence_and_a_phrase_stays(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    found = note("audit.of-a-test", "no document was shown at {n} positions")(n=2)
    Output(as_json=False, verbose=False).points(
        [found, phrase("{name}: {why}", name="prs", why="a")]
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["- No document was shown at 2 positions.", "- prs: a"]


def test_no_text_of_a_log_commands_the_terminal(capsys, tmp_path):
    r"""ESC, C1 controls, marks that turn text: ids, names of files, cells, errors, paths."""
    foreign = "q\x1b[2J \x9b31m \x07\r \u202e\u2066 \udcff"
    with speaking(as_json=False, verbose=True) as out:
        out.say(foreign)
        out.heading(foreign)
        out.table(("name", foreign), [(foreign, foreign)])
        out.points([foreign])
        out.path(foreign, tmp_path / foreign)
        out.detail(foreign)
    (tmp_path / "esc.csv").write_text(
        "query_id,session_id,doc_id,position,click\n"
        "q\x1b[2Jq,s,d\x1b[31md,1,-1\nq\x1b[2Jq,s,e,2,0\n"
    )
    CliRunner().invoke(app, ["audit", str(tmp_path / "esc.csv")], catch_exceptions=False)
    with pytest.raises(OptionError) as raised:
        raise OptionError(foreign)
    shown = text([Section("log", foreign, (foreign,))])
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "esc.csv")], catch_exceptions=False)
    stdout, stderr = capsys.readouterr()
    assert "q\\x1b[2Jq" in done.output
    for each in (stdout, stderr, done.output, str(raised.value), shown):
        assert not set(each) & set("\x1b\x9b\x07\r\u202e\u2066\udcff"), each
    assert "\\x1b[2J" in stdout
