"""docs/security.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_cells_of_the_matrix_are_tests() -> None:
    tests = (ROOT / "tests" / "broker" / "clients" / "test_security.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 8
    assert named == set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))


def test_the_files_that_are_named_are_there() -> None:
    named = re.findall(r"`((?:tests|broker)/[\w/]+\.py)`", PAGE)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
