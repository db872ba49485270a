"""`transactional_ids`, `transactions` and `producers` against what DumpLogSegments prints of the same files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.log.tables.dumps import aborted, decoded, snapshot, snapshots
from tests.log.tables.record_dumps import TRANSACTIONS
from tests.log.tables.test_batches import moment

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def table(root: Path, name: str, topic: str | None = None, **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LogDirs.open(root).table(name, topic, **asked).read_all().to_pylist()
    return rows


def known(producer_id: int) -> int | None:
    return None if producer_id == -1 else producer_id


def test_transactional_id_states_equal_those_of_kafkas_tool() -> None:
    said = decoded(TRANSACTIONS)
    rows = table(data_dir(), "transactional_ids", history=True)
    assert len(said) == 185
    for row, record in zip(rows, said, strict=True):
        assert record.payload is not None
        partitions = [
            {"topic": topic["topic"], "partition": partition}
            for topic in record.payload["transactionPartitions"] or []
            for partition in topic["partitionIds"]
        ]
        assert row == {
            "transactional_id": record.key["transactionalId"],
            "producer_id": record.payload["producerId"],
            "producer_epoch": record.payload["producerEpoch"],
            "state": STATES[record.payload["transactionStatus"]],
            "timeout_ms": record.payload["transactionTimeoutMs"],
            "partitions": sorted(partitions, key=lambda one: (one["topic"], one["partition"])),
            "last_update": moment(record.payload["transactionLastUpdateTimestampMs"]),
            "started_at": moment(record.payload["transactionStartTimestampMs"]),
            "previous_producer_id": known(record.payload.get("previousProducerId", -1)),
            "next_producer_id": known(record.payload.get("nextProducerId", -1)),
            "source_partition": record.partition,
            "source_offset": record.offset,
            "deleted": False,
            "error": None,
        }
    last = {record.key["transactionalId"]: record.offset for record in said}
    latest = table(data_dir(), "transactional_ids")
    assert {row["transactional_id"]: row["source_offset"] for row in latest} == last


@pytest.mark.parametrize("partition", [0, 1])
def test_aborted_transactions_equal_kafkas_transaction_index(partition: int) -> None:
    rows = [row for row in table(data_dir(), "transactions", "transactions") if row["partition"] == partition]
    found = [(row["producer_id"], row["first_offset"], row["last_offset"]) for row in rows if row["state"] == "aborted"]
    assert found == aborted(f"transactions-{partition}") != []
    assert {row["state"] for row in rows} == {"aborted", "committed"}


@pytest.mark.parametrize("partition", [0, 1])
def test_transactions_have_the_batches_and_records_of_dump_log_segments(partition: int) -> None:
    (log,) = [log for log in golden_logs(KAFKA_4_3, "transactions", crashed=False) if log.partition == partition]
    batches = [batch for path in log.segments() for batch in log.batches(path) if batch.transactional]
    states = {row["offset"]: row["committed"] for row in log.records()}
    rows = [row for row in table(data_dir(), "transactions", "transactions") if row["partition"] == partition]
    for row in rows:
        mine = [b for b in batches if b.producer_id == row["producer_id"] and not b.control]
        mine = [b for b in mine if row["first_offset"] <= b.base_offset < row["last_offset"]]
        (marker,) = [b for b in batches if b.control and b.base_offset == row["last_offset"]]
        assert (row["batches"], row["records"]) == (len(mine), sum(b.count or 0 for b in mine))
        assert (row["size"], row["producer_epoch"]) == (sum(b.size for b in mine), mine[0].producer_epoch)
        assert (marker.producer_id, moment(marker.timestamp)) == (row["producer_id"], row["ended_at"])
        assert row["last_timestamp"] == moment(max(b.timestamp for b in mine))
        seen = {states[offset] for b in mine for offset in range(b.base_offset, b.last_offset + 1)}
        assert seen == {row["state"] == "committed"}
    assert sum(row["batches"] for row in rows) == sum(not b.control for b in batches)
    owners = {(row["producer_id"], row["transactional_id"]) for row in rows}
    assert owners == {(2, "tx-1-0"), (3, "tx-1-1"), (4, "tx-1-2")}


def cut_markers(root: Path) -> tuple[int, int]:
    """Take the last two markers off partition 1, as if the broker had never written them; returns the first offsets of
    their transactions, in the order of the markers."""
    (log,) = [log for log in golden_logs(KAFKA_4_3, "transactions", crashed=False) if log.partition == 1]
    path = root / "transactions-1" / log.segments()[-1].name
    end = log.batches(log.segments()[-1])[-2]
    assert end.control
    path.write_bytes(path.read_bytes()[: end.position])
    (root / "transactions-1" / "00000000000000000400.snapshot").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    (root / ".kafka_cleanshutdown").unlink()
    return aborted("transactions-1")[-1][1], end.base_offset


def test_transaction_without_a_marker_unknown_to_the_coordinator_is_hanging(
    golden_copy: Callable[..., Path],
) -> None:
    root = golden_copy(KAFKA_4_3, crashed=False)
    first, end = cut_markers(root)
    (hanging,) = [row for row in table(root, "transactions", "transactions") if row["last_offset"] is None]
    assert (hanging["state"], hanging["transactional_id"]) == ("hanging", "tx-1-0")
    assert (hanging["first_offset"], hanging["coordinator_state"]) == (first, "CompleteAbort")
    shutil.rmtree(root / "__transaction_state-0")
    (still_open,) = [row for row in table(root, "transactions", "transactions") if row["last_offset"] is None]
    assert (still_open["state"], still_open["transactional_id"]) == ("open", None)
    rows = table(root, "partitions", "transactions")
    assert (rows[1]["last_stable_offset"], rows[1]["log_end_offset"]) == (first, end)


@pytest.mark.parametrize(
    "partition", ["transactions-0", "transactions-1", "idempotent-0", "idempotent-1", "compacted-0"]
)
@pytest.mark.parametrize("removed", ["none", "last", "all"])
def test_producers_equal_kafkas_last_snapshot_even_without_it(
    partition: str, removed: str, golden_copy: Callable[..., Path]
) -> None:
    root = golden_copy(KAFKA_4_3, partition)
    names = snapshots(partition)
    for name in {"none": [], "last": names[-1:], "all": names}[removed]:
        (root / name).unlink()
    rows = table(root, "producers", partition.rpartition("-")[0])
    said: dict[int, dict[str, Any]] = {**snapshot(names[-1])}
    found = {row["producer_id"]: {key: row[key] for key in next(iter(said.values()))} for row in rows}
    assert found == {producer: of | {"last_timestamp": moment(of["last_timestamp"])} for producer, of in said.items()}
    at = int(names[-1].rpartition("/")[2].partition(".")[0])
    assert removed != "none" or {row["snapshot_offset"] for row in rows} == {at}
    assert removed != "all" or {row["snapshot_offset"] for row in rows} == {None}


def test_open_transaction_is_found_by_its_producer(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, crashed=False)
    first, _ = cut_markers(root)
    rows = table(
        root, "producers", "transactions", columns=["partition", "transactional_id", "transaction_first_offset"]
    )
    assert {"partition": 1, "transactional_id": "tx-1-0", "transaction_first_offset": first} in rows
