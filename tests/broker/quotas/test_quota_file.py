"""Quotas on disk, and what is refused before it gets there. What Kafka refuses: tests/interop/test_quotas.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.quotas.client_quotas import DEFAULT, Entity
from kafkalog_broker.quotas.quota_changes import FILE, altered, quota_file
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

QUOTAS = {
    Entity("alice", DEFAULT): {"producer_byte_rate": 1048576.0, "request_percentage": 12.5},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 3.0},
}


def test_the_newest_copy_counts(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        directory.mkdir()
    file = quota_file(directories)
    assert file.load() is None
    file.save({})
    old = (directories[0] / FILE).read_bytes()
    file.save(QUOTAS)
    assert (directories[1] / FILE).stat().st_mode & 0o077 == 0
    (directories[0] / FILE).write_bytes(old)
    assert quota_file(directories).load() == QUOTAS
    (directories[0] / FILE).write_bytes(b"{")
    assert quota_file(directories).load() == QUOTAS
    (directories[1] / FILE).write_bytes(b"{")
    with pytest.raises(CorruptFile):
        quota_file(directories).load()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b'{"version": 0}', b'{"version": 0, "generation": "x", "quotas": []}',
        b'{"version": 0, "generation": 1, "quotas": [{"entity": {}, "values": {}}]}',
        b'{"version": 0, "generation": 1, "quotas": [{"entity": {"user": "a"}, "values": {"x": 1}}]}',
        b'{"version": 0, "generation": 1, "quotas": [{"entity": {"user": "a"}, "values": {"request_percentage": 0}}]}',
    ],
)  # fmt: skip
def test_damage_is_found(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        quota_file([]).parse(data)


def test_what_is_written_is_read() -> None:
    file = quota_file([])
    assert file.parse(file.dump(7, {**QUOTAS, Entity("empty"): {}})) == (7, QUOTAS)
    with pytest.raises(UnsupportedFormat):
        file.parse(file.dump(1, {}).replace(b'"version": 0', b'"version": 1'))


def test_operations_are_made_one_after_another() -> None:
    operations = [("producer_byte_rate", None), ("consumer_byte_rate", 9.0000000001)]
    assert altered(QUOTAS, [("client-id", None), ("user", "alice")], operations) == (
        Entity("alice", DEFAULT),
        {"request_percentage": 12.5, "consumer_byte_rate": 9.0},
    )
    with pytest.raises(BrokerError, match="too large"):
        altered({}, [("user", "a")], [("producer_byte_rate", 2.0**63)])
