"""Frames of every API and version with something wrong in them are decoded, or are MalformedRequest: nothing else comes
out, and they take neither more memory nor more calls than their size allows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FEW, MANY = 4_000, 60_000


@pytest.mark.parametrize(
    ("seed", "count"), [(1, FEW), *(pytest.param(seed, MANY, marks=pytest.mark.slow) for seed in (2, 3, 4))]
)
def test_damaged_requests_are_decoded_or_malformed(seed: int, count: int, tmp_path: Path) -> None:
    note = tmp_path / "frame"
    command = [sys.executable, "-m", "tests.broker.protocol.helpers.request_fuzz", str(seed), str(count), str(note)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    frame = note.read_text().partition("\n")[0] if note.exists() else ""
    assert ran.returncode == 0, f"API key, version, body: {frame}\n{ran.stderr[-3000:]}"
    good, bad = map(int, ran.stdout.split())
    assert good + bad == count
    assert min(good, bad) > count / 10  # the damage is neither so small nor so great that it shows nothing
