"""What is said to somebody at a command line: its own words, and commands that can be pasted.

The library speaks Python: pass missing=0.0, use AllPairs, `untilt plan LOG`. Such parts of a
sentence are marked in its template (`untilt.facts`). `CommandLine` is the voice that words them
with the options of the command that runs and what was given to it: --missing 0.0, all-pairs,
`untilt plan 'my log.csv' --column query_id=srch_id`.
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
from untilt.facts import PYTHON, Voice

# What a command writes is its own: another one would write over it.
_OUTPUTS = frozenset(
    {"out", "plot", "clip_plot", "sensitivity_plot", "folder", "as_json", "verbose"}
)
# Arguments of Python whose option has another name.
_OPTIONS = {"by": "intervals", "methods": "method", "models": "model"}
_VALUE = r"\{[^}]*\}|\[[^\]]*\]|'[^']*'|\"[^\"]*\"|\.\.\.|[\w:+-]+(?:\.\w+)*"
_KEYWORD = re.compile(rf"(?<![\w.='?&-])(?<!--option )(?<!--column )([a-z_]+)=({_VALUE})")
_ARGUMENTS = rf"(?:[a-z_]+=(?:{_VALUE})(?:, )?)*"
_CALL = re.compile(rf"\b(?:ut\.|untilt\.)?([A-Z]\w+)(?:\(({_ARGUMENTS})\))?")
_FIT = re.compile(rf"\b(?:ut|untilt)\.([A-Z]\w+)\(({_ARGUMENTS})\)\.fit\(log\)")
_OPENING = re.compile(r"^([a-z_]+)(?= must | takes | has no )")
_COMMAND = re.compile(r"^untilt ([a-z]+) (NEW_)?LOG\b((?: --[a-z-]+(?: [^\s`,;-][^\s`,;]*)?)*)")


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
            error.args = (_OPENING.sub(self._opening, error.said(self)),)
            raise
        finally:
            _LINE.reset(token)

    def marked(self, text: str) -> str:
        """An argument, a call or a class of Python as option, command or method."""
        text = _FIT.sub(self._fitted, text)
        text = _CALL.sub(self._named, text)
        text = _KEYWORD.sub(self._option, text)
        return re.sub(r"\bpass (?=--)", "give ", text)

    def other(self, python: str, command_line: str) -> str:  # noqa: ARG002
        """The wording that is for command lines."""
        return command_line

    def command(self, command: str) -> str:
        """The command with what was given to this one."""
        return _COMMAND.sub(self._completed, command)

    def method(self, name: str) -> str:
        """The name of an estimator, such as all-pairs."""
        return _CALL.sub(self._named, name)

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
        return f"`{self.command(f'untilt bias NEW_LOG --method {name} {options}'.strip())}`"

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
        if command[1] == "bias" and not _takes_context(own):
            named.add("--context")
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
        from untilt.cli.arguments import READING_OPTIONS

        ours = self._parameter(theirs.name)
        if ours is None or theirs.param_type_name == "argument" or theirs.name in _OUTPUTS:
            return False
        same = theirs.name in READING_OPTIONS or getattr(ours, "help", None) == theirs.help
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
            line.given[name.name] = _read(value)


def _takes_context(options: str) -> bool:
    """Whether `untilt bias` with these options has a use for --context."""
    method = re.search(r"--method (\S+)", options)
    return method is None or "context" in catalog.find("bias", method[1]).needs


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
        return [f"{name}={_column(column)}" for name, column in value.items()]
    return [_text(each) for each in (value if isinstance(value, list) else [value])]


def _read(value: Any) -> list[str]:
    """What was read from a file of options, once for each time that it is given."""
    if isinstance(value, dict):
        return [f"{name}={'' if each is None else each}" for name, each in value.items()]
    return [_text(each) for each in (value if isinstance(value, list) else [value])]


def _column(name: Any) -> str:
    """A column's name; nothing for none, and a placeholder for "your column" or "..."."""
    if name is Ellipsis or str(name).startswith(("your ", "the ")):
        return "YOUR_COLUMN"
    return "" if name is None else str(name)


def _text(value: Any) -> str:
    if value is Ellipsis or value == "...":
        return "VALUE"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
