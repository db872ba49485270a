"""Each codec in everything that uses it: sink, reader, tables, validation and Produce, wrappers of message sets."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from kafkalog_broker.api import client_telemetry
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.legacy_wrapper import build_wrapper
from kafkalog_broker.storage.append.message_set_validation import validate_message_set
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.codecs import CODECS, KAFKA_CODECS
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.codecs.functions import CODEC_FUNCTIONS
from kafkalog_spark.log.log_dir import LogDirs
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_requests import PRODUCE, TOPIC, produce_fields
from tests.broker.storage.helpers.stored_logs import NOW, log_config
from tests.log.helpers.legacy_builder import LegacyRecord, message_set
from tests.sink.helpers.written_logs import START, read, values, write

DEFINITIONS = json.loads((Path(__file__).parent / "broker/config/kafka-4.3.0-definitions.json").read_text())
TEXTS = [b"value %d" % i for i in range(100)]


def batch_of_the_sink(log_dir: Path, codec: Codec) -> bytes:
    write(
        log_dir, values(*(text.decode() for text in TEXTS), timestamp=START), topic=TOPIC, compression_type=codec.label
    )
    return (log_dir / f"{TOPIC}-0" / (names.segment_name(0) + names.LOG_SUFFIX)).read_bytes()


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_sink_batch_has_its_codec_and_is_read(codec: Codec, tmp_path: Path) -> None:
    data = batch_of_the_sink(tmp_path, codec)
    header = parse_header(data, 0, 0)
    assert (header.codec, header.record_count, header.size) == (codec, len(TEXTS), len(data))
    assert [row["value"] for row in read(tmp_path)] == TEXTS
    (row,) = LogDirs.open(tmp_path).table("batches").read_all().to_pylist()
    assert row["codec"] == codec.label


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_produce_accepts_a_codec_from_its_first_version_on(codec: Codec, tmp_path: Path) -> None:
    data = batch_of_the_sink(tmp_path / "sink", codec)
    first = CODECS[codec].first_produce_version
    taken = 0
    with BrokerInProcess(tmp_path / "data") as broker:
        topic = broker.run(broker.broker.ensure_topic(TOPIC, 1, {}))
        for version in range(3, 14):
            answer = broker.ask(request_entity(PRODUCE, version, produce_fields(None, 0, data), {TOPIC: topic.id}))
            is_taken = first is not None and version >= first
            expected = ErrorCode.none if is_taken else ErrorCode.unsupported_compression_type
            assert answer.responses[0].partition_responses[0].error_code == expected, version
            taken += is_taken
        assert broker.broker.log(TOPIC, 0).log_end_offset == taken * len(TEXTS)
    assert [row["value"] for row in read(tmp_path / "data")] == TEXTS * taken


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE], ids=lambda codec: codec.label)
def test_message_set_with_an_unsupported_codec_is_refused(codec: Codec, magic: int) -> None:
    inner = message_set(magic, [LegacyRecord(0, None, b"value", NOW)])
    data = memoryview(build_wrapper(magic, codec, compress(codec, inner), 0, NOW))
    if CODECS[codec].in_message_sets:
        batch = validate_message_set(data, log_config(), NOW)
        assert batch is not None
        assert batch.header.codec == codec
    else:
        reason = f"cannot be compressed with {codec.label}" if codec in KAFKA_CODECS else "is unknown"
        with pytest.raises(BrokerError, match=reason):
            validate_message_set(data, log_config(), NOW)


def test_every_codec_has_facts_and_functions() -> None:
    assert set(CODECS) == set(Codec)
    assert set(CODEC_FUNCTIONS) == set(Codec) - {Codec.NONE}
    assert sorted(Codec) == list(range(len(Codec))), "kernels compare with the largest id"
    assert max(Codec) <= layout.ATTRIBUTE_CODEC


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_codec_facts_equal_kafkas_properties(kind: str) -> None:
    defined = {entry["name"]: entry for entry in DEFINITIONS if entry["kind"] == kind}
    types = set(defined["compression.type"]["validator"].strip("[]").split(", "))
    assert types == {"producer", "uncompressed", *(codec.label for codec in KAFKA_CODECS if codec != Codec.NONE)}
    levels = {codec: facts.levels for codec, facts in CODECS.items() if facts.levels and codec in KAFKA_CODECS}
    properties = {name for name in defined if re.fullmatch(r"compression\..*\.level", name)}
    assert {f"compression.{codec.label}.level" for codec in levels} == properties
    for codec, level in levels.items():
        entry = defined[f"compression.{codec.label}.level"]
        assert int(entry["default"]) == level.default
        assert f"[{level.lowest},...,{level.highest}]" in entry["validator"]
    fields = {field.name for field in dataclasses.fields(LogConfig)}
    assert {f"compression_{codec.label}_level" for codec in levels} <= fields


def test_telemetry_accepts_kafkas_codecs() -> None:
    assert sorted(client_telemetry._ACCEPTED_CODECS) == sorted(KAFKA_CODECS - {Codec.NONE})
