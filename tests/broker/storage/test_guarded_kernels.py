"""Compiled kernels neither read nor write outside their buffers, even for malformed bytes.

Each buffer ends at a page whose access ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FEW, MANY = 150, 8_000


@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected with mprotect")
@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, FEW), *(pytest.param(seed, MANY, marks=[pytest.mark.slow, pytest.mark.timeout(1000)]) for seed in (2, 3))],
)
def test_kernels_on_malformed_batches_stay_in_their_buffers_and_match_the_python_implementation(
    seed: int, count: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.broker.storage.helpers.guarded_fuzz", str(seed), str(count), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    note = tmp_path / "note"
    batch = note.read_text().partition("\n")[0] if note.exists() else ""
    assert (ran.returncode, ran.stdout) == (0, f"{count}\n"), f"batch {batch}\n{ran.stderr[-3000:]}"


def test_access_outside_a_guarded_buffer_ends_the_process(tmp_path: Path) -> None:
    for at, start in ((5, "False"), (-1, "True")):
        code = (
            "import ctypes; from tests.log.helpers.guarded import guarded_bytes\n"
            f"array = guarded_bytes(b'12345', at_start={start})\n"
            f"ctypes.string_at(array.ctypes.data + {at}, 1)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
        assert ran.returncode < 0, ran.stderr
