"""Producer ids are never given twice, whatever happens in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog_broker.storage.producer_ids import BLOCK, FILE, ProducerIds
from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.log.format.producer_snapshot import read_producer_snapshot
from tests.golden_data import GOLDEN


def test_ids_count_up_from_0(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert [ids.next() for _ in range(BLOCK + 2)] == list(range(BLOCK + 2))


def test_a_block_is_on_disk_before_its_first_id_is_given(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert not (tmp_path / FILE).exists()
    ids.next()
    assert (tmp_path / FILE).read_text() == f"0\n{BLOCK}\n"


def test_a_restart_goes_on_behind_the_block(tmp_path: Path) -> None:
    given = ProducerIds([tmp_path]).next()
    assert ProducerIds([tmp_path]).next() == BLOCK > given


def test_ids_begin_above_those_that_a_real_kafka_gave(tmp_path: Path) -> None:
    golden = tmp_path / "data"
    shutil.copytree(GOLDEN / "kafka-4.3.0" / "data", golden)
    known = [entry.producer_id for path in golden.glob("*/*.snapshot") for entry in read_producer_snapshot(path)]
    assert max(known) >= 0
    assert ProducerIds([golden]).next() >= max(known) + BLOCK
    assert ProducerIds([golden]).next() % BLOCK == 0


def test_the_largest_number_of_all_directories_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    two.mkdir()
    ProducerIds([one]).next()
    assert ProducerIds([one, two]).next() == BLOCK
    assert ProducerIds([two]).next() == 2 * BLOCK


def test_a_directory_that_has_gone_stops_nobody_while_another_is_there(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path / "gone", tmp_path])
    assert ids.next() == 0
    with pytest.raises(FileNotFoundError):
        ProducerIds([tmp_path / "gone"]).next()


@pytest.mark.parametrize("text", ["", "0\n", "1\n5\n", "0\nx\n", "0\n5", "0\n-5\n"])
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CorruptFile, match="producer id"):
        ProducerIds([tmp_path])


def test_ids_that_somebody_else_has_given_out_are_not_given_again(tmp_path):
    """A mirror's: the whole block is left to whoever gave it out, and that survives a crash."""
    ids = ProducerIds([tmp_path])
    assert not ids.may_give(-1)
    assert ids.may_give(4321)
    ids.stay_above(4321)
    assert not ids.may_give(4999)
    ids.stay_above(3)  # nothing new
    again = ProducerIds([tmp_path])
    again.fetch()
    assert again.next() == 6000
