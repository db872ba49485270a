"""notebooks/incident.ipynb with the directory of a real Kafka, which then loads the saved directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_real_kafka_loads_a_repair import PARTITIONS, TOPIC, check_goes_on, commit, ours, produce
from tests.notebooks.test_incident import run_incident

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

RECORDS = 10_000


@pytest.mark.filterwarnings("ignore")
def test_kafka_loads_the_directory_saved_by_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = RealKafka(tmp_path / "kafka")
    with kafka:
        kafka.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 20_000})
        produce(kafka, RECORDS, b"before")
        commit(kafka)
    shown = run_incident(kafka.data_dir, tmp_path / "repaired", monkeypatch)
    assert "0 of them unexplained" in shown
    kafka.data_dir.rename(tmp_path / "before")
    (tmp_path / "repaired").rename(kafka.data_dir)
    kept = ours(kafka.data_dir)
    assert RECORDS * 9 // 10 < len(kept) < RECORDS
    check_goes_on(kafka, kept)
