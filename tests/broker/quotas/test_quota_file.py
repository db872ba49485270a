"""The quota file, and alterations that are refused before it is written.

tests/interop/test_quotas.py compares the refusals with those of Kafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.quotas.quota_alteration import QuotaOperation, alter_quotas
from kafkalog_broker.quotas.quota_entity import DEFAULT, Entity
from kafkalog_broker.quotas.quota_file import FILE, quota_file
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

QUOTAS = {
    Entity("alice", DEFAULT): {"producer_byte_rate": 1048576.0, "request_percentage": 12.5},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 3.0},
}


def test_load_returns_the_newest_undamaged_copy(tmp_path: Path) -> None:
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
def test_parse_of_damaged_file_raises_corrupt_file(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        quota_file([]).parse(data)


def test_parse_returns_what_dump_wrote_and_refuses_a_later_version() -> None:
    file = quota_file([])
    assert file.parse(file.dump(7, {**QUOTAS, Entity("empty"): {}})) == (7, QUOTAS)
    with pytest.raises(UnsupportedFormat):
        file.parse(file.dump(1, {}).replace(b'"version": 0', b'"version": 1'))


def test_alter_applies_operations_in_order_and_refuses_large_values() -> None:
    operations = [QuotaOperation("producer_byte_rate", None), QuotaOperation("consumer_byte_rate", 9.0000000001)]
    assert alter_quotas(QUOTAS, [("client-id", None), ("user", "alice")], operations) == (
        Entity("alice", DEFAULT),
        {"request_percentage": 12.5, "consumer_byte_rate": 9.0},
    )
    with pytest.raises(BrokerError, match="too large"):
        alter_quotas({}, [("user", "a")], [QuotaOperation("producer_byte_rate", 2.0**63)])
