"""Every sentence in the sources is a template that its call sites can fill, in both voices."""

import ast
import re
from functools import cache
from itertools import product
from pathlib import Path

from untilt.facts import _TOKEN, PYTHON, SPECS, rendered

SOURCE = Path(__file__).parents[1] / "src" / "untilt"
MAKERS = {"note", "warning", "serious", "phrase"}
LISTS = ("listed", "few", "all", "and", "clauses", "sentences", "lines", "uppers")
SAMPLES = {"p": {"x": 0.1}, "pairs": [(1, 2)], "positions": (1, 2, 4)}
SAMPLES |= {spec: ["a", "b"] for spec in LISTS}


@cache
def trees():
    """Every source, parsed; not where tests are only collected, which each worker does."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


class Shown:
    """A voice that takes every mark away."""

    def marked(self, text):
        return text

    def other(self, python, command_line):
        return command_line

    def command(self, command):
        return command.replace("LOG", "log.csv")

    def method(self, name):
        return name.lower()


def texts(node, constants):
    """All texts that an expression of literals, +, conditions and named constants can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = product(texts(node.left, constants), texts(node.right, constants))
        return ["".join(pair) for pair in both]
    if isinstance(node, ast.IfExp):
        return texts(node.body, constants) + texts(node.orelse, constants)
    if isinstance(node, ast.Name) and node.id in constants:
        return texts(constants[node.id], constants)
    if isinstance(node, ast.Attribute) and node.attr == "template":  # of a sentence made before
        made = constants.get(getattr(node.value, "id", ""))
        return texts(made.args[1], constants) if isinstance(made, ast.Call) else []
    return []


def holes(template):
    """Field -> format, for all fields of a template and of its marks."""
    found = {}
    for mark, command, name, spec in _TOKEN.findall(template):
        found |= holes(mark) | holes(command) | ({name: spec} if name else {})
    return found


def made():
    """(where, template, keywords of the calls that fill it in its own file)."""
    for path, tree in trees().items():
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {id(value): name for name, value in constants.items()}
        for call in calls:
            maker = getattr(call.func, "id", "")
            if maker == "notes":
                for each in call.keywords:
                    for text in texts(each.value, constants):
                        yield f"{path.relative_to(SOURCE)}:{call.lineno}", text, []
            if maker not in MAKERS:
                continue
            of_phrase = maker == "phrase"
            named = names.get(id(call), "")
            filling = [call] if of_phrase else [
                each for each in calls
                if each.func is call or (named and getattr(each.func, "id", "") == named)
            ]  # fmt: skip
            keywords = [[each.arg for each in one.keywords] for one in filling]
            for text in texts(call.args[0 if of_phrase else 1], constants):
                yield f"{path.relative_to(SOURCE)}:{call.lineno}", text, keywords


def test_templates_can_be_filled_and_said_in_both_voices():
    told = list(made())
    assert len(told) > 400
    for where, template, calls in told:
        fields = holes(template)
        for keywords in calls:
            assert None in keywords or set(fields) <= set(keywords), where
        filled = {
            name: SAMPLES.get(spec, "x" if spec in SPECS or not spec else 2)
            for name, spec in fields.items()
        }
        for voice in (PYTHON, Shown()):
            said = rendered(template, filled, voice)
            assert not re.search(r"[⟦⟧]|\{\w", said), (where, said)
        assert "LOG`" not in said, (where, said)
