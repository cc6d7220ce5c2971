"""Does each package stay within its budget of code lines?  python tools/budget.py [--set]

The budgets stand in tools/budget.txt; `--set` writes the numbers of now. A commit that raises one
says why. Counted are lines with code: no docstrings, comments or blank lines.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, BUDGET = ROOT / "src" / "untilt", Path(__file__).with_name("budget.txt")
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
)  # fmt: skip


def code_lines(text: str) -> int:
    """Lines of a source with code."""
    owners = (node for node in ast.walk(ast.parse(text)) if isinstance(node, OWNERS))
    said = [node.body[0] for node in owners if ast.get_docstring(node, clean=False) is not None]
    words = {line for each in said for line in range(each.lineno, (each.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = (range(each.start[0], each.end[0] + 1) for each in tokens if each.type not in NO_CODE)
    return len({line for span in spans for line in span} - words)


def counted() -> Counter[str]:
    """Code lines of each package; "top" is what lies beside them."""
    found: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).parts
        found[parts[0] if len(parts) > 1 else "top"] += code_lines(path.read_text(encoding="utf8"))
    return found


def main() -> int:
    """Say what is over its budget."""
    found = counted()
    if "--set" in sys.argv:
        BUDGET.write_text("".join(f"{name:12} {n:5}\n" for name, n in sorted(found.items())))
    rows = (line.split() for line in BUDGET.read_text(encoding="utf8").splitlines())
    budget = {name: int(lines) for name, lines in rows}
    over = {name: n for name, n in sorted(found.items()) if n > budget.get(name, 0)}
    for name, n in over.items():
        print(
            f"src/untilt/{name} has {n:,} code lines and a budget of {budget.get(name, 0):,}. Make "
            f"it smaller, or raise its line in tools/budget.txt in a commit that says why."
        )
    return int(bool(over))


if __name__ == "__main__":
    raise SystemExit(main())
