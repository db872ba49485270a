"""Requests and responses of every API and version are decoded and encoded as by kio."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from datetime import timedelta
from typing import Any

import kio.schema.errors
import kio.serial
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol import api_messages
from kafkalog_broker.protocol.api_messages import array_writer, reader, request_class, response_class, writer
from kafkalog_broker.protocol.responses import build_struct
from kafkalog_spark.format.messages.wire import Malformed
from kafkalog_spark.format.messages.writer import OWN_PIECE
from tests.broker.protocol.helpers.drawn_messages import (
    REQUEST_VERSIONS,
    encode,
    entities,
    requests_of,
    served_first,
    versions_with,
)
from tests.broker.protocol.helpers.kio_messages import is_same, kio_request_class, kio_response_class, ours_of
from tests.searches import examples

RESPONSE_VERSIONS = versions_with(EntityType.response)
CLASSES = [
    (ours(key, version), kios(key, version))
    for versions, ours, kios in (
        (REQUEST_VERSIONS, request_class, kio_request_class),
        (RESPONSE_VERSIONS, response_class, kio_response_class),
    )
    for key in versions
    for version in versions[key]
]


def test_apis_and_versions_equal_those_of_kio() -> None:
    kafkas = [key for key in api_messages.api_keys() if key < api_messages.FIRST_OWN_API_KEY]
    assert {key: list(api_messages.api_versions(key)) for key in kafkas} == REQUEST_VERSIONS


def test_error_codes_equal_those_of_kio() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        code.name: code.value for code in kio.schema.errors.ErrorCode
    }


def test_structs_of_all_versions_have_the_fields_of_kio() -> None:
    for ours, kios in CLASSES:
        module = sys.modules[kios.__module__]
        for name, made in vars(ours._message.classes).items():
            theirs = getattr(module, name, None)
            if theirs is not None:
                assert made._struct.is_flexible == theirs.__flexible__
                assert sorted(made._fields) == sorted(field.name for field in dataclasses.fields(theirs)), (kios, name)


@pytest.mark.parametrize("key", served_first(REQUEST_VERSIONS), ids=str)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_decoding_returns_the_encoded_values_and_skips_unknown_tags(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, drawn = data.draw(requests_of(key, version))
    body = encode(drawn, data.draw(st.none() | st.binary(max_size=200)))
    read = reader(request_class(key, version))
    found, end = read(b"head" + body + b"tail", 4)
    assert is_same(found, drawn)
    assert end == 4 + len(body)
    assert read(memoryview(body), 0) == (found, len(body))


@pytest.mark.parametrize("key", served_first(RESPONSE_VERSIONS))
@given(data=st.data())
def test_responses_are_encoded_as_by_kio(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(RESPONSE_VERSIONS[key]))
    answer = data.draw(entities(kio_response_class(key, version)))
    kind = response_class(key, version)
    expected = io.BytesIO()
    kio.serial.entity_writer(type(answer))(expected, answer)
    assert b"".join(writer(kind)(ours_of(kind, answer), bytearray(b"head"))) == b"head" + expected.getvalue()


@pytest.mark.parametrize("key", served_first(RESPONSE_VERSIONS))
@settings(max_examples=examples(20))
@given(data=st.data())
def test_responses_are_decoded_as_by_kio(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(RESPONSE_VERSIONS[key]))
    answer = data.draw(entities(kio_response_class(key, version)))
    body = encode(answer)
    found, end = reader(response_class(key, version))(body, 0)
    assert is_same(found, answer)
    assert end == len(body)


@pytest.mark.parametrize("key", served_first(REQUEST_VERSIONS), ids=str)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_requests_are_encoded_as_by_kio(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, drawn = data.draw(requests_of(key, version))
    kind = request_class(key, version)
    assert b"".join(writer(kind)(ours_of(kind, drawn), bytearray())) == encode(drawn)


COMPILE_IN_THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor
from kafkalog_broker.protocol import api_messages

threads = threading.Barrier(2)
compile_struct = api_messages.struct_of

def compile_slowly(*arguments):
    try:
        threads.wait(timeout=0.5)
    except threading.BrokenBarrierError:  # the other thread does not compile it too
        pass
    return compile_struct(*arguments)

api_messages.struct_of = compile_slowly
with ThreadPoolExecutor(2) as pool:
    first, second = pool.map(lambda _: api_messages.response_class(2, 7), range(2))
print(first is second is api_messages.response_class(2, 7))
"""


def test_concurrent_threads_get_the_same_message_class() -> None:
    ran = subprocess.run([sys.executable, "-c", COMPILE_IN_THREADS], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


def test_truncated_body_is_malformed() -> None:
    with pytest.raises(Malformed, match="it ends early"):
        reader(request_class(12, 0))(b"\0", 0)


CONFIGS = response_class(32, 4)


def answer_with(configs: Any) -> Any:
    return build_struct(CONFIGS, results=[{"resource_name": "orders", "configs": configs}] * 2)


@pytest.mark.parametrize("length", [1, OWN_PIECE])
def test_large_encoded_array_is_not_copied(length: int) -> None:
    structs = CONFIGS._message.classes
    config = structs.DescribeConfigsResourceResult(name="n" * length, value=None, read_only=True)
    encoded = b"".join(array_writer(structs.DescribeConfigsResult, "configs")((config,), bytearray()))
    write = writer(CONFIGS)
    pieces = write(answer_with(encoded), bytearray())
    assert b"".join(pieces) == b"".join(write(answer_with((config,)), bytearray()))
    assert [piece is encoded for piece in pieces] == ([False] if length == 1 else [False, True, False, True, False])


def test_null_in_a_non_nullable_field_is_refused() -> None:
    with pytest.raises(TypeError, match="resource_name is null"):
        writer(CONFIGS)(build_struct(CONFIGS, results=[{"resource_name": None}]), bytearray())


@pytest.mark.parametrize(("ms", "duration"), [(2**63 - 1, timedelta.max), (-(2**63), timedelta.min)])
def test_durations_beyond_the_range_of_timedelta_are_clamped(ms: int, duration: timedelta) -> None:
    kind = request_class(8, 2)  # OffsetCommit
    body = b"".join(writer(kind)(build_struct(kind, retention_time=ms), bytearray()))
    assert reader(kind)(body, 0)[0].retention_time == duration
