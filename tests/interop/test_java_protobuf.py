"""Random messages of Protobuf are read as Java's library reads them, and turned into rows by the rules of Spark's
deserializer, which are written down once more here.

test_protobuf_oracle.py asks from_protobuf itself, where its jar is to be had.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.real_kafka import cache_dir, maven_jar
from tests.spark.processes.protobuf_oracle import decoded
from tests.typed.canonical import canonical
from tests.typed.random_protobuf import Case, cases

pytestmark = pytest.mark.interop
PROTOBUF = "com.google.protobuf:protobuf-java:4.29.3"
"""The version of Spark 4.1 and later."""
_READER = Path(__file__).with_name("ProtobufReader.java")


class Far(Exception):
    """A timestamp beyond Spark's 64-bit microseconds, which makes the value bad."""


@pytest.fixture(scope="module")
def jar() -> Path:
    """Java's library, from Maven, once."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Java's library comes from Maven")
    return maven_jar(PROTOBUF, cache_dir() / "protobuf-java")


def by_java(jar: Path, given: list[Case], at: Path) -> list[Any]:
    """Return Java's parse results for all values."""
    with at.open("wb") as file:
        file.write(struct.pack(">i", len(given)))
        for case in given:
            zeros = case.options["emit.default.values"] == "true"
            file.write(struct.pack(">i", len(case.descriptors)) + case.descriptors)
            file.write(struct.pack(">?i", zeros, len(case.values)))
            for value in case.values:
                file.write(struct.pack(">i", len(value)) + value)
    run = ("java", "-XX:TieredStopAtLevel=1", "-cp", str(jar), str(_READER), str(at))
    return [json.loads(line) for line in subprocess.run(run, check=True, capture_output=True).stdout.splitlines()]


def row(value: Any, type_: pa.DataType) -> Any:
    """What Java read, as `canonical` gives it for a column of that type. Raises Far."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: row(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {row(one["key"], type_.key_type): row(one["value"], type_.item_type) for one in value}
    if pa.types.is_list(type_):
        return [row(one, type_.value_type) for one in value]
    if pa.types.is_timestamp(type_):
        millis = (int(value["seconds"]) * 1000 + 2**63) % 2**64 - 2**63
        if not -(2**63) <= millis * 1000 < 2**63:
            raise Far
        return (millis * 1000 + math.trunc(int(value["nanos"]) / 1000) + 2**63) % 2**64 - 2**63
    return _plain(value, type_)


def _plain(value: Any, type_: pa.DataType) -> Any:
    if isinstance(value, list):
        name, number = value
        return name.encode() if pa.types.is_string(type_) else number
    if isinstance(value, bool):
        return value
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return bytes.fromhex(value)
    if pa.types.is_floating(type_):
        found = struct.unpack(">d", struct.pack(">q", int(value)))[0]
        return str(found) if found == 0 or math.isnan(found) else found
    if pa.types.is_decimal(type_):
        return Decimal(int(value) % 2**64)
    return int(value)


def wide(value: Any, type_: pa.DataType, descriptor: Any) -> Any:
    """A row with uint32 as it is in a bigint, which the type alone does not say. `descriptor`: of the row's message."""
    if value is None or not pa.types.is_struct(type_):
        return value
    found = dict(value)
    for field in type_:
        at = descriptor.fields_by_name[field.name]
        found[field.name] = _wide(value[field.name], field.type, at)
    return found


def _wide(value: Any, type_: pa.DataType, field: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_map(type_):
        key, item = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        return {_wide(one, type_.key_type, key): _wide(held, type_.item_type, item) for one, held in value.items()}
    if pa.types.is_list(type_):
        return [_wide(one, type_.value_type, field) for one in value]
    if pa.types.is_struct(type_):
        return wide(value, type_, field.message_type)
    return value % 2**32 if field.type == field.TYPE_UINT32 and pa.types.is_int64(type_) else value


def differences(jar: Path, at: Path, seed: int, schemas: int, values: int) -> tuple[list[Any], int]:
    """(values on which the two differ, how many are bad)."""
    from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of

    given = cases(seed, schemas, values)
    lines = iter(by_java(jar, given, at))
    found: list[Any] = []
    bad = 0
    for case in given:
        ours = decoded(case)
        type_ = ours.columns.type
        pool, names = pool_of(case.descriptors, "cases")
        descriptor = message_of(pool, names, "T.M0", "cases")
        for i, mine in enumerate(canonical(ours.columns)):
            java = next(lines)
            try:
                theirs = None if "bad" in java else wide(row(java, type_), type_, descriptor)
            except Far:
                theirs = None
            is_bad = ours.bad is not None and bool(ours.bad[i])
            bad += is_bad
            if mine != theirs or is_bad != (theirs is None):
                found.append((case.options, case.values[i].hex(), mine, theirs, ours.why(i) if is_bad else java))
    assert next(lines, None) is None
    return found, bad


def test_sample_is_parsed_as_by_java(jar: Path, tmp_path: Path) -> None:
    found, bad = differences(jar, tmp_path / "cases", 11, 20, 100)
    assert found == []
    assert bad > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_thousand_messages_are_parsed_as_by_java(jar: Path, tmp_path: Path, seed: int) -> None:
    found, bad = differences(jar, tmp_path / "cases", seed, 100, 200)
    assert found == []
    assert bad > 1000
