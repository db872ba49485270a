"""Answers of the transaction scenario in a form that two runs share: producer ids numbered as they come, no times."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkalog_broker.coordinator.record_batch import decode_batches
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_records import OffsetKey, decode_key, decode_offset_value
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.transaction_index import load_transaction_index
from kafkalog_spark.log.write.encoded_batch import split_batches
from tests.broker.api.helpers.plain_entities import plain

OF_THE_RUN = {"last_timestamp", "transaction_start_time", "log_append_time", "timestamp", "port", "host"}
IDS = {"producer_id"}
_STATE = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state


class Names:
    """Producer ids of a run as P0, P1 ... in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def of(self, producer_id: int) -> str | int:
        return producer_id if producer_id < 0 else self._known.setdefault(producer_id, f"P{len(self._known)}")


def comparable(answer: Any, names: Names) -> Any:
    if isinstance(answer, list):
        return [comparable(item, names) for item in answer]
    if isinstance(answer, bytes):
        return batches(answer, names)
    if not isinstance(answer, dict):
        return answer
    found = {}
    for name, value in answer.items():
        if name in IDS:
            value = names.of(value)
        elif name in OF_THE_RUN:
            value = "set" if value not in (-1, None, 0) else value
        elif name in ("topic_id", "error_message", "message"):
            continue
        else:
            value = comparable(value, names)
        found[name] = value
    return found


def batches(data: bytes, names: Names) -> list[dict[str, Any]]:
    """What the headers of `data` say, with the type of control batches."""
    found = []
    for encoded in split_batches(data):
        header = encoded.header
        found.append(
            {
                "offsets": [header.base_offset, header.last_offset],
                "producer": names.of(header.producer_id),
                "epoch": header.producer_epoch,
                "sequence": header.base_sequence,
                "transactional": header.is_transactional,
                "control": control_type(encoded.data) if header.is_control else None,
            }
        )
    return found


def files(data_dir: Path, names: Names) -> dict[str, Any]:
    """Batches and aborted transactions of the topic, the records of __transaction_state and the committed offsets in
    __consumer_offsets, as they lie on disk."""
    found: dict[str, Any] = {}
    for directory in sorted(data_dir.glob("accounts-*")):
        for path in sorted(directory.glob("*.log")):
            found[f"{directory.name}/{path.name}"] = batches(path.read_bytes(), names)
        for path in sorted(directory.glob("*.txnindex")):
            found[f"{directory.name}/{path.name}"] = [
                [names.of(entry.producer_id), *entry[1:]] for entry in load_transaction_index(path)
            ]
    for directory in sorted(data_dir.glob("__transaction_state-*")):
        found[directory.name] = list(
            _state_records((path.read_bytes() for path in sorted(directory.glob("*.log"))), names)
        )
    for directory in sorted(data_dir.glob("__consumer_offsets-*")):
        found[directory.name] = list(_committed_offsets(path.read_bytes() for path in sorted(directory.glob("*.log"))))
    return found


def _committed_offsets(chunks: Iterable[bytes]) -> Iterable[list[Any]]:
    """[group, topic, partition, offset, version, topic id set] of each."""
    for batch in decode_batches(chunks):
        for key, value in batch.records:
            about = decode_key(key)
            if isinstance(about, OffsetKey) and value is not None:
                committed = decode_offset_value(value)
                version = int.from_bytes(value[:2], "big")
                yield [*about, committed.offset, version, committed.topic_id is not None]


def _state_records(chunks: Iterable[bytes], names: Names) -> Iterable[list[Any]]:
    """[transactional id, producer, epoch, timeout, state, start set, previous and next producer, version] of each."""
    worn: set[str] = set()
    for batch in decode_batches(chunks):
        for key, value in batch.records:
            transactional_id = key[4:].decode()
            if value is None:
                yield [transactional_id, None]
                continue
            version, producer_id, epoch, timeout, state = _STATE.unpack_from(value)
            at, topics = _partitions(value, _STATE.size)
            _, start = struct.unpack_from(">qq", value, at)
            tags = _tags(value, at + 16)
            record = [
                transactional_id, version, names.of(producer_id), epoch, timeout, state, topics, start >= 0,
                names.of(tags.get(0, -1)), names.of(tags.get(1, -1)), tags.get(2, 0), sorted(set(tags) - {0, 1, 2}),
            ]  # fmt: skip
            if transactional_id.startswith("worn") and state == 0 and 0 < epoch < 32766:
                if transactional_id not in worn:
                    worn.add(transactional_id)
                continue  # the many steps to the last epoch
            yield record


def _partitions(value: bytes, at: int) -> tuple[int, dict[str, list[int]] | None]:
    count, at = value[at] - 1, at + 1
    if count < 0:
        return at, None
    topics = {}
    for _ in range(count):
        size, at = value[at] - 1, at + 1
        name, at = value[at : at + size].decode(), at + size
        length, at = value[at] - 1, at + 1
        topics[name] = sorted(struct.unpack_from(f">{length}i", value, at))
        at += 4 * length + 1  # and no tagged fields
    return at, dict(sorted(topics.items()))


def _tags(value: bytes, at: int) -> dict[int, int]:
    count, at = value[at], at + 1
    found = {}
    for _ in range(count):
        tag, size = value[at], value[at + 1]
        at += 2
        found[tag] = int.from_bytes(value[at : at + size], "big", signed=True)
        at += size
    return found


class Kept:
    """Answers by label, in order."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.answers: dict[str, Any] = {}

    def add(self, label: str, answer: Any) -> dict[str, Any]:
        told: dict[str, Any] = answer if isinstance(answer, dict) else plain(answer)
        while label in self.answers:
            label += "'"
        self.answers[label] = comparable(told, self.names)
        return told


def read_described(data: bytes) -> dict[str, Any]:
    """The body of a DescribeTransactions answer, version 0. kio refuses the -1 of a transaction that has not begun."""
    throttle, count, at = struct.unpack_from(">i", data)[0], data[4] - 1, 5
    states = []
    for _ in range(count):
        code = struct.unpack_from(">h", data, at)[0]
        name, at = _compact_text(data, at + 2)
        state, at = _compact_text(data, at)
        timeout, start, producer_id, epoch = struct.unpack_from(">iqqh", data, at)
        at += 22
        topics = []
        topic_count, at = data[at] - 1, at + 1
        for _ in range(topic_count):
            topic, at = _compact_text(data, at)
            length, at = data[at] - 1, at + 1
            topics.append({"topic": topic, "partitions": sorted(struct.unpack_from(f">{length}i", data, at))})
            at += 4 * length + 1
        at += 1
        states.append({
            "error_code": ErrorCode(code).name, "transactional_id": name, "transaction_state": state,
            "transaction_timeout": timeout, "transaction_start_time": start, "producer_id": producer_id,
            "producer_epoch": epoch, "topics": sorted(topics, key=lambda topic: str(topic["topic"])),
        })  # fmt: skip
    assert at + 1 == len(data)
    return {"throttle_time": throttle, "transaction_states": states}


def _compact_text(data: bytes, at: int) -> tuple[str, int]:
    size = data[at] - 1
    return data[at + 1 : at + 1 + size].decode(), at + 1 + size
