"""Kernels run as plain Python, without Numba's compiler, pass the same tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["tests/kernels/test_kernels.py"])
def test_kernels_pass_their_tests_as_plain_python(file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.log.helpers.kernels_as_python", file, "-k", "not compiled and not cached_kernel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
