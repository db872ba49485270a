"""Test files that a change affects, for `make check`.

    python -m tests.affected changed [BASE]
    python -m tests.affected others [BASE]

The change is the difference between the work tree, with untracked files, and BASE: a commit, by default the one where
the branch left `main`. The first command prints the changed test files, and those that run after every change. The
second prints the other affected files: test files that import a changed module or test helper, also through other
helpers; then test files in the folder that mirrors the folder of a changed module. Tests that reach the changed code
through other product modules are left to `make test`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PRODUCT = {"kafkalog_spark": "", "broker/kafkalog_broker": "broker"}
"""Folder of a package: its mirror below `tests`."""
AFTER_EVERY_CHANGE = ("tests/test_import_rules.py", "tests/test_readme.py", "tests/test_documents.py")

MOST_OTHERS = 40
"""Number of files among `others` that are collected: more would hardly begin within the budget of `make check`."""


def changed_files(base: str) -> list[str]:
    """Return the paths that differ from `base`, relative to the root, without deleted files."""
    tracked = _git("diff", "--name-only", "--diff-filter=d", base)
    return sorted({*tracked, *_git("ls-files", "--others", "--exclude-standard")})


class Affected(NamedTuple):
    """Test files that a change affects, as paths relative to the root, the nearest first.

    Attributes:
        changed: Changed test files, and those that run after every change.
        others: Test files near changed modules and helpers.
    """

    changed: list[str]
    others: list[str]


def affected(changed: Iterable[str], imports: Mapping[str, set[str]]) -> Affected:
    """Return the test files that a change affects.

    Args:
        changed: Changed paths, relative to the root.
        imports: For each file below `tests` the paths of the files that it imports.
    """
    changed = set(changed)
    importers = set(changed)
    while more := {path for path, others in imports.items() if others & importers} - importers:
        importers |= more
    mirrors = {mirror for path in changed if (mirror := _mirror(path))}
    tests = [path for path in sorted(imports) if Path(path).name.startswith("test_")]
    first = list(dict.fromkeys([*(path for path in tests if path in changed), *AFTER_EVERY_CHANGE]))
    others = [
        *(path for path in tests if path in importers),
        *(path for path in tests if str(Path(path).parent) in mirrors),
    ]
    return Affected(first, [path for path in dict.fromkeys(others) if path not in first][:MOST_OTHERS])


def imports_of_tests() -> dict[str, set[str]]:
    """Return what each file below `tests` imports of this repository, as paths relative to the root."""
    return {
        str(path.relative_to(ROOT)): {file for name in _imported(path) if (file := _file_of(name))}
        for path in (ROOT / "tests").rglob("*.py")
    }


def _imported(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(module: str) -> str | None:
    path = module.replace(".", "/") + ".py"
    return next((found for found in (path, f"broker/{path}") if (ROOT / found).is_file()), None)


def _mirror(path: str) -> str | None:
    """Return the folder below `tests` that mirrors the folder of a product module."""
    for package, mirror in PRODUCT.items():
        if path.startswith(f"{package}/"):
            return str(Path("tests", mirror, path.removeprefix(f"{package}/")).parent)
    return None


def _git(*command: str) -> list[str]:
    return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    part, *bases = sys.argv[1:]
    base = bases[0] if bases else _git("merge-base", "HEAD", "main")[0]
    print("\n".join(getattr(affected(changed_files(base), imports_of_tests()), part)))
