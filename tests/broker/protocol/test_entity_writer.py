"""Writers made for kio's classes write what kio's own do."""

from __future__ import annotations

import io
from typing import Any

import kio.serial
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.describe_configs.v4 import response as describe_configs
from kio.static.constants import EntityType

from kafkalog_broker.protocol.codec import response_class
from kafkalog_broker.protocol.entity_writer import OWN_PIECE, array_writer, entity_writer
from kafkalog_broker.protocol.response_entity import entity
from tests.broker.protocol.helpers.drawn_entities import entities, served_first, versions_with

VERSIONS = versions_with(EntityType.response)


@pytest.mark.parametrize("key", served_first(VERSIONS))
@given(data=st.data())
def test_they_write_what_kio_writes(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS[key]))
    kind: Any = response_class(key, version)
    answer = data.draw(entities(kind))
    expected = io.BytesIO()
    kio.serial.entity_writer(kind)(expected, answer)
    assert b"".join(entity_writer(kind)(answer, bytearray(b"head"))) == b"head" + expected.getvalue()


def answer_with(configs: Any) -> Any:
    kind: Any = describe_configs.DescribeConfigsResponse
    return entity(kind, results=[{"resource_name": "orders", "configs": configs}] * 2)


@pytest.mark.parametrize("length", [1, OWN_PIECE])
def test_an_array_that_is_encoded_already_is_not_copied_when_it_is_large(length: int) -> None:
    config = describe_configs.DescribeConfigsResourceResult(
        name="n" * length, value=None, read_only=True, is_sensitive=False, synonyms=(), documentation=None
    )  # fmt: skip
    encoded = b"".join(array_writer(describe_configs.DescribeConfigsResult, "configs")((config,), bytearray()))
    write = entity_writer(describe_configs.DescribeConfigsResponse)
    pieces = write(answer_with(encoded), bytearray())
    assert b"".join(pieces) == b"".join(write(answer_with((config,)), bytearray()))
    assert [piece is encoded for piece in pieces] == ([False] if length == 1 else [False, True, False, True, False])


def test_what_cannot_be_null_is_refused() -> None:
    kind: Any = describe_configs.DescribeConfigsResult
    with pytest.raises(TypeError, match="resource_name is null"):
        entity_writer(kind)(entity(kind, resource_name=None), bytearray())
