"""Runs test files with the kernels as plain Python: `python -m tests.log.helpers.kernels_as_python FILE ...`.

Numba leaves its functions as they are with NUMBA_DISABLE_JIT=1; what it only has as instructions is put in here. An
index beyond an array, which a compiled kernel would follow, raises IndexError then.
"""

from __future__ import annotations

import os
import sys

os.environ["NUMBA_DISABLE_JIT"] = "1"

from typing import Any

import numpy as np
import pytest

from kafkalog_spark.kernels import primitives


def copy_bytes(target: Any, target_at: int, source: Any, source_at: int, count: int) -> None:
    if not 0 <= target_at <= target_at + count <= len(target):
        raise IndexError(f"{count} bytes to {target_at} of {len(target)}")
    if not 0 <= source_at <= source_at + count <= len(source):
        raise IndexError(f"{count} bytes from {source_at} of {len(source)}")
    target[target_at : target_at + count] = source[source_at : source_at + count]


def load_u64(buffer: Any, at: int) -> np.uint64:
    if not 0 <= at <= at + 8 <= len(buffer):
        raise IndexError(f"8 bytes from {at} of {len(buffer)}")
    return np.uint64(int.from_bytes(bytes(buffer[at : at + 8]), "little"))


if __name__ == "__main__":
    primitives.copy_bytes, primitives.load_u64 = copy_bytes, load_u64
    # numpy warns of overflow in integers, which is what kernels count with
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n0", "-W", "ignore::RuntimeWarning", *sys.argv[1:]]))
