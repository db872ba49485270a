"""notebooks/incident.ipynb runs from its first cell to its last, and what it prints is true."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest

from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "incident.ipynb"


def run_incident(source: Path, repaired: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What it prints of `source`, which it damages a copy of."""
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    monkeypatch.setenv("KAFKALOG_DIR", str(source))
    monkeypatch.setenv("KAFKALOG_REPAIRED", str(repaired))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    return "".join(output.get("text", "") for output in outputs)


def records(root: Path) -> int:
    return sum(batch.num_rows for batch in LogDirs.open(root).scan(columns=("offset",), control_records=True))


# jupyter_client and ipykernel: event loops and sockets that are collected late, and settings they will rename
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run_incident(golden, tmp_path / "repaired", monkeypatch)
    found = re.search(
        r"records: (\d+) before, (\d+) after, 0 changed\nlost: (\d+) records, 0 of them unexplained", shown
    )
    assert found is not None, shown
    before, after, lost = map(int, found.groups())
    assert (before, after) == (records(golden), records(tmp_path / "repaired"))
    assert lost == before - after > 0
    assert "check: 0 errors" in shown
    assert check_log_dirs([tmp_path / "repaired"]).findings.errors == 0
    assert "CRC-32C does not match" in shown
    assert "segments" in shown
