"""Listings of README and docs: found in the pages, and run as a reader runs them, one after the other.

A page's Python listings share one namespace, which begins with `spark`, as in Spark's shell; its relative paths lie in
the working directory. A listing with test functions is a file of pytest. `<!-- not run: REASON -->` in the line before
a listing says why it is not run.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))
QUICKSTARTS = tuple(page for page in PAGES if page.startswith("docs/start/"))
"""Pages whose commands run as well."""
SHELL = "shell"

_LISTING = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Listing:
    """line: of its first line in the page, from 1. language: as the page says it, `shell` where it says nothing.
    reason: why it is not run; None where it is."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    """page: its name from the root of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def listings(page: str, *languages: str) -> list[Listing]:
    """A page's listings in these languages (all without), in order."""
    text = text_of(page)
    found = []
    for match in _LISTING.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Listing(page, line, match["language"] or SHELL, match["code"], match["reason"]))
    return [listing for listing in found if not languages or listing.language in languages]


def program(page: str) -> str:
    """The Python listings of a page that are run, as one program."""
    return "\n".join(listing.code for listing in listings(page, "python") if listing.reason is None)


def run_listing(listing: Listing, names: dict[str, Any]) -> list[Any]:
    """Run a Python or SQL listing; `names` is changed. Returns the values of its expressions and assignments."""
    if listing.language == "sql":
        return [names["spark"].sql(listing.code)]
    if re.search(r"^def test_", listing.code, re.MULTILINE):
        _run_tests(listing)
        return []
    tree = ast.parse("\n" * (listing.line - 1) + listing.code, str(listing.page))
    before, values = dict(names), []
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            values.append(eval(compile(ast.Expression(statement.value), listing.page, "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), listing.page, "exec"), names)
    return values + [value for name, value in names.items() if value is not before.get(name)]


def run_page(page: str, names: dict[str, Any]) -> Iterator[tuple[Listing, list[Any]]]:
    """Each listing of Python and SQL that is run, with its values."""
    for listing in listings(page, "python", "sql"):
        if listing.reason is None:
            yield listing, run_listing(listing, names)


def _run_tests(listing: Listing) -> None:
    file = Path("test_of_the_page.py")
    file.write_text(listing.code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", str(file)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{listing}\n{ran.stdout}{ran.stderr}"
