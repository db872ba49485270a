"""Compaction of eight partitions, three times each, compared with the files that Kafka 4.3.0 left.

tests/interop/compaction.py recorded compaction.tar.xz."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.broker.storage.helpers.kafka_compaction import HORIZON, compacted, compare
from tests.interop.compaction import PLAIN, SEGMENT_BYTES, TOPICS, TRANSACTIONS, TURNS
from tests.log.helpers import plain_decoder

RECORDED = Path(__file__).parent / "compaction.tar.xz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as file:
        file.extractall(target, filter="data")
    return target


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("topic", TOPICS)
def test_compacted_segments_equal_those_of_kafka(topic: str, turn: int, recorded: Path, tmp_path: Path) -> None:
    before, after = recorded / f"before-{turn}", recorded / f"after-{turn}"
    log = compacted(topic, before, after, tmp_path, SEGMENT_BYTES[topic])
    compare(topic, log.directory, after / f"{topic}-0")
    log.close()


def test_recorded_partitions_cover_all_compaction_cases(recorded: Path) -> None:
    """Merged segments, emptied batches, delete horizons, and tombstones and markers removed by the next cleaning."""

    def batches(name: str, topic: str) -> list[plain_decoder.Batch]:
        paths = sorted((recorded / name / f"{topic}-0").glob("*.log"))
        return [found for path in paths for found in plain_decoder.decode_log(path)]

    def segments(name: str, topic: str) -> int:
        return len(list((recorded / name / f"{topic}-0").glob("*.log")))

    assert any(
        segments(f"after-{turn}", topic) < segments(f"before-{turn}", topic) for turn in TURNS for topic in TOPICS
    )
    _, second, third = (batches(f"after-{turn}", TRANSACTIONS) for turn in TURNS)
    assert any(not found.records for found in second)
    markers = {found.base_offset for found in second if found.is_control and found.attributes & HORIZON}
    assert markers
    assert not markers & {found.base_offset for found in third}
    tombstones = [
        {record.offset for found in batches(name, PLAIN[0]) for record in found.records if record.value is None}
        for name in ("before-2", "after-2")
    ]
    assert tombstones[0] - tombstones[1]
