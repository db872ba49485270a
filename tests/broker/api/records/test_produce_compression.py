"""Which codecs a Produce request of which version may use."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from kafkalog_broker.errors import ErrorCode
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.write.encoded_batch import header_fields, seal
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_requests import PRODUCE, TOPIC, batch, produce_fields


def compressed_with_zstd() -> bytes:
    plain = batch(1, -1, producer_id=-1, producer_epoch=-1, transactional=False)
    data = bytearray(plain[: layout.RECORDS_AT]) + zstandard.compress(plain[layout.RECORDS_AT :])
    fields = header_fields(
        0, 0, 1, 0, 0, attributes=Codec.ZSTD, leader_epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1
    )
    seal(data, 0, len(data), fields)
    return bytes(data)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_with_zstd_is_accepted_from_version_7_on(tmp_path: Path, version: int) -> None:
    with BrokerInProcess(tmp_path / "data") as broker:
        topic = broker.run(broker.broker.ensure_topic(TOPIC, 1, {}))
        fields = produce_fields(None, 0, compressed_with_zstd())
        answer = broker.ask(request_entity(PRODUCE, version, fields, {TOPIC: topic.id}))
        partition = answer.responses[0].partition_responses[0]
        log = broker.broker.log(TOPIC, 0)
        if version >= 7:
            assert (partition.error_code, log.log_end_offset) == (ErrorCode.none, 1)
        else:
            assert (partition.error_code, log.log_end_offset) == (ErrorCode.unsupported_compression_type, 0)
