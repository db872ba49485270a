"""Kernels index arrays by the names of an enum or `layout`, never by numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kafkalog_broker
import kafkalog_spark

OTHERS = {"primitives.py", "helper_compiler.py", "compile_cache.py", "cache_directories.py"}
"""Functions of Numba's compiler and of the host; a CRC table has no names for its eight slices."""
KERNELS = [
    path
    for path in [
        *(Path(kafkalog_spark.__file__).parent / "kernels").glob("*.py"),
        *(Path(kafkalog_spark.__file__).parent / "typed").rglob("*kernel.py"),
        Path(kafkalog_spark.__file__).parent / "typed" / "protobuf" / "wire.py",
        *Path(kafkalog_broker.__file__).parent.rglob("*_kernel.py"),
    ]
    if path.name not in OTHERS
]


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def numbered(source: str) -> list[str]:
    """Subscripts like `cursor[3]` and `units[unit, 3]`. Those of `shape` and of an intrinsic's `args` have no other
    name."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Subscript):
            continue
        if ast.unparse(node.value).rpartition(".")[2] in {"shape", "args"}:
            continue
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(map(is_number, places)):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_kernels_index_arrays_by_names_and_not_by_numbers(path: Path) -> None:
    assert numbered(path.read_text(encoding="utf-8")) == []


def test_numeric_subscripts_are_found() -> None:
    names = {path.name for path in KERNELS}
    assert {"decode_v2.py", "sweep.py", "cleaner_kernel.py", "record_walk_kernel.py", "wire.py"} <= names
    found = numbered("a[3] = b[i, 2] + c[Cursor.ROWS] + d.shape[0] + e[i:j]")
    assert sorted(found) == ["line 1: a[3]", "line 1: b[i, 2]"]
