"""What is said to somebody at a command line: its own words, and commands that can be pasted.

The library speaks Python: pass missing=0.0, use AllPairs, `untilt plan LOG`. While a command runs,
every fact and every error goes through `CommandLine.worded`, which knows the options of the command
and what was given: --missing 0.0, all-pairs, `untilt plan 'my log.csv' --column query_id=srch_id`.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from untilt import catalog
from untilt._core.addresses import without_secrets
from untilt.errors import UntiltError
from untilt.facts import PYTHON, Fact, Voice

# What a command writes is its own: another one would write over it.
_OUTPUTS = frozenset(
    {"out", "plot", "clip_plot", "sensitivity_plot", "folder", "as_json", "verbose"}
)
# Arguments of Python whose option has another name.
_OPTIONS = {"by": "intervals", "methods": "method", "models": "model"}
# Calls of Python, and what to do instead. The rest of a sentence must fit either.
_CALLS = {
    r"(?:ut|untilt)\.AllPairs\(\)\.fit\(log\)\.bias_": (
        "that of `untilt bias LOG --out bias.json`"
    ),
    r"\bUBM\(\)\.fit\(log\)\.bias_ gives (?:it|one)": "`untilt bias LOG` estimates one",
    r"(?:ut\.|untilt\.)?PowerLaw\(([\d.]+)\)": r"power-law:\1",
    r", or make one: log\.with_label\(.*?astype\(float\)\)": "",
    r": log\.with_label\(.*?astype\(float\)\) makes clicks of it": (
        ": choose another with --label NAME"
    ),
    r"\(log\.with_label\)": "(--label NAME)",
    r"log\.with_label\((?:name|\.\.\.)\)(?: with a click column)?": "--label NAME",
    r"(?:ut\.|untilt\.)?read_log\(\.\.\., ([^)]*)\)": r"\1",
    r"Give read_log a table of documents with features": "Give --documents TABLE",
    r"Give read_log the documents table \(documents=\.\.\.\) or the feature columns "
    r"\(features=\[\.\.\.\]\)": (
        "Give --documents TABLE, or the feature columns of the log: --features 'f_*'"
    ),
    r"Cut the log with log\.top\((\d+)\) or estimate the bias on deeper pages": (
        r"Estimate the bias on pages that go below position \1, or give a curve: --bias power-law:1"
    ),
    r"log\.top\((\w+)\)": r"depth=\1",
    r" \(see ut\.clip_curve\)": (
        " (the report of `untilt run` and --clip-plot of `untilt evaluate` draw how much)"
    ),
    r"ranker\.save\(path\) keeps it for untilt": "The file of `untilt train` keeps it for untilt",
    r"Pass \('[^']*', 'table name'\)": "Name it: --table NAME, or of the documents "
    "--documents-table NAME",
    r"\b(?:ut|untilt)\.shown\b": "shown",
    r"""'your column'|"the column"|(?<=': )\.\.\.""": "'YOUR_COLUMN'",
    r", or give KnownBias\(.*?\)": "",
    r"\bestimate it with TrustEM": "`untilt bias LOG --method trust-em --out bias.json` makes one",
    r"\bcolumns maps our names": "--column maps our names",
    r"^clicks must be a ClickLog, or the click rates": "--rates must be the click rates",
    r"Got \['([^']*)'\]": r"Got '\1'",
    r"Got None instead": "Got nothing instead",
}
_CALLED = [(re.compile(pattern), words) for pattern, words in _CALLS.items()]
_VALUE = r"\{[^}]*\}|\[[^\]]*\]|'[^']*'|\"[^\"]*\"|\.\.\.|[\w:+-]+(?:\.\w+)*"
_KEYWORD = re.compile(rf"(?<![\w.='?&-])(?<!--option )(?<!--column )([a-z_]+)=({_VALUE})")
_ARGUMENTS = rf"(?:[a-z_]+=(?:{_VALUE})(?:, )?)*"
_CALL = re.compile(rf"\b(?:ut\.|untilt\.)?([A-Z]\w+)(?:\(({_ARGUMENTS})\))?")
_FIT = re.compile(rf"\b(?:ut|untilt)\.([A-Z]\w+)\(({_ARGUMENTS})\)\.fit\(log\)")
_QUOTED = re.compile(r"(`untilt [^`]*`)")
_OPENING = re.compile(r"^([a-z_]+)(?= must | takes | has no )")
_COMMAND = re.compile(
    r"(?:^|(?<=`))untilt ([a-z]+) (NEW_)?LOG\b((?: --[a-z-]+(?: [^\s`,;-][^\s`,;]*)?)*)"
)


@dataclass
class CommandLine:
    """A command with what was given to it, as it was typed: parameter -> texts."""

    running: Any
    commands: Mapping[str, Any]
    given: dict[str, list[str]] = field(default_factory=dict)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Output and errors in the words of this command line."""
        token = _LINE.set(self)
        try:
            yield
        except UntiltError as error:
            is_phrase = isinstance(error.text, Fact)
            error.args = (error.said(self) if is_phrase else self.worded(str(error)),)
            raise
        finally:
            _LINE.reset(token)

    def marked(self, text: str) -> str:
        """An argument, a call or a class of Python as option, command or method."""
        return self._said(text)

    def other(self, python: str, command_line: str) -> str:  # noqa: ARG002
        """The wording that is for command lines."""
        return command_line

    def command(self, command: str) -> str:
        """The command with what was given to this one."""
        return _COMMAND.sub(self._completed, command)

    def method(self, name: str) -> str:
        """The name of an estimator, such as all-pairs."""
        return _CALL.sub(self._named, name)

    def worded(self, text: str) -> str:
        """The text as it is said here. Commands in it are completed, and else left alone."""
        parts = [text] if text.startswith("untilt ") else _QUOTED.split(text)
        said = [part if part.lstrip("`").startswith("untilt ") else self._said(part)
                for part in parts]  # fmt: skip
        return _COMMAND.sub(self._completed, "".join(said))

    def _said(self, text: str) -> str:
        """Calls, classes and arguments of Python as commands, methods and options."""
        for pattern, words in _CALLED:
            text = pattern.sub(words, text)
        text = _FIT.sub(self._fitted, text)
        text = _CALL.sub(self._named, text)
        text = _KEYWORD.sub(self._option, text)
        text = _OPENING.sub(self._opening, text)
        text = re.sub(r"\bcolumns\[('\w+')\]", r"--column \1", text)
        return re.sub(r"\bpass (?=--)", "give ", text)

    def _named(self, call: re.Match[str]) -> str:
        """AllPairs as all-pairs; with arguments, --method all-pairs and its options."""
        records = [each for each in catalog.methods("bias") if each.target == call[1]]
        if not records:
            return call[0]
        name, arguments = records[0].name, call[2]
        if call[2] is None or not self._has("method"):
            return name
        return f"--method {name} {arguments}".strip().replace(", ", " ")

    def _fitted(self, call: re.Match[str]) -> str:
        """untilt.PivotSwap(pivot=1).fit(log) as a command; the log is one that is yet to be."""
        bias = CommandLine(self.commands["bias"], self.commands)
        options = _KEYWORD.sub(bias._option, call[2]).replace(", ", " ")
        name = catalog.find("bias", call[1]).name
        return "`" + f"untilt bias NEW_LOG --method {name} {options}".strip() + "`"

    def _option(self, keyword: re.Match[str]) -> str:
        """missing=0.0 as --missing 0.0; what no option is called stays."""
        name, value = _OPTIONS.get(keyword[1], keyword[1]), _literal(keyword[2])
        parameter = self._parameter(name)
        if parameter is None:
            if not self._has("option"):
                return self._of_bias(name, value) or keyword[0]
            flag, values = "--option", [f"{name}={_text(value)}"]
        else:
            flag, values = _flag(parameter), _values(value, parameter)
            if parameter.is_flag and value is True:
                return flag
        if value is Ellipsis or value == "...":
            return f"{flag} {values[0]}"
        return " ".join(f"{flag} {shlex.quote(each)}" for each in values)

    def _of_bias(self, name: str, value: Any) -> str:
        """An option that `untilt bias` alone has: estimators run inside other commands, too."""
        bias = CommandLine(self.commands["bias"], self.commands)
        parameter = bias._parameter(name)
        if parameter is None or self.running is bias.running:
            return ""
        return f"{_flag(parameter)} {shlex.quote(_values(value, parameter)[0])} of `untilt bias`"

    def _opening(self, name: re.Match[str]) -> str:
        """pivot must be ...: an option that a sentence begins with."""
        parameter = self._parameter(_OPTIONS.get(name[1], name[1]))
        return name[0] if parameter is None else _flag(parameter)

    def _completed(self, command: re.Match[str]) -> str:
        """`untilt plan LOG` with the log and every option that the two commands share."""
        target, own = self.commands.get(command[1]), command[3]
        log = ["NEW_LOG"] if command[2] else [self.log] if self.log else []
        if target is None:
            return command[0]
        # An export in place of a log is an option, which comes with the others.
        instead = "ubi" in self.given and any(each.name == "ubi" for each in target.params)
        if not log and not instead:
            return command[0]
        named = set(re.findall(r" (--[a-z-]+)", own))
        words = ["untilt", command[1], *log]
        for parameter in target.params:
            if not named & set(parameter.opts) and self._shares(parameter):
                values = self.given[parameter.name]
                together = [values] if parameter.nargs > 1 else [[value] for value in values]
                for each in together:
                    words += [_flag(parameter)] + ([] if parameter.is_flag else each)
        return shlex.join(words) + own

    @property
    def log(self) -> str:
        """The log that was given; "" without one."""
        names = [p.name for p in self.running.params if p.param_type_name == "argument"]
        return next((self.given[name][0] for name in names if self.given.get(name)), "")

    def _shares(self, theirs: Any) -> bool:
        """Whether an option of another command was given here, and means the same."""
        from untilt.cli.arguments import READING

        ours = self._parameter(theirs.name)
        if ours is None or theirs.param_type_name == "argument" or theirs.name in _OUTPUTS:
            return False
        same = theirs.name in READING or getattr(ours, "help", None) == theirs.help
        return same and bool(self.given.get(theirs.name))

    def _parameter(self, name: str) -> Any:
        options = (p for p in self.running.params if p.param_type_name == "option")
        return next((each for each in options if each.name == name), None)

    def _has(self, name: str) -> bool:
        return self._parameter(name) is not None


_LINE: ContextVar[CommandLine | None] = ContextVar("command line", default=None)


def current_voice() -> Voice:
    """The command that runs; Python's words outside of any."""
    return _LINE.get() or PYTHON


def reads_from(log: Any, options: Mapping[str, Any]) -> None:
    """Say what the command really reads, where a file of options has a part in it."""
    line = _LINE.get()
    if line is None or not isinstance(log, str):
        return
    line.given["log"] = [without_secrets(log)]
    for name in line.running.params:
        value = options.get(name.name)
        if value is not None and name.name not in line.given:
            line.given[name.name] = _values(value, name)


def _flag(parameter: Any) -> str:
    return next(each for each in parameter.opts if each.startswith("--"))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _values(value: Any, parameter: Any) -> list[str]:
    """What stands behind the option, once for each time that it is given."""
    if value is Ellipsis or value == "...":
        return [parameter.metavar or parameter.name.upper()]
    if isinstance(value, dict):
        return [f"{name}={'' if column is None else column}" for name, column in value.items()]
    return [_text(each) for each in (value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    if value is Ellipsis or value == "...":
        return "VALUE"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
