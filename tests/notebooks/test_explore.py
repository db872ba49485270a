"""notebooks/explore.ipynb runs from its first cell to its last, on the directory that Kafka 4.3 wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "explore.ipynb"


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.spark
# jupyter_client and ipykernel: event loops and sockets that are collected late, and settings they will rename
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    monkeypatch.setenv("KAFKALOG_DIR", str(golden))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = outputs(notebook)
    plots = [output for output in shown if "image/png" in output.get("data", {})]
    assert len(plots) == 4, "throughput, batch sizes, compression, lag"
    text = "".join(output.get("text", "") for output in shown)
    for word in ("codec-zstd", "snappy", "lag", "committed"):
        assert word in text
