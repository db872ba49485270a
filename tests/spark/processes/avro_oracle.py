"""Reads random Avro values with Spark's from_avro and with kafkalog, writes random rows with to_avro and with kafkalog,
and prints where they differ; run in a process.

    python -m tests.spark.processes.avro_oracle JAR SEED SCHEMAS VALUES

The last line is JSON: {"values": …, "bad": …, "different": [[schema, value in hex, ours, Spark's] …], "allowed": …,
"written": …}.
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.avro.encoder import AvroEncoder
from kafkalog_spark.typed.avro.read_options import read_options_of
from kafkalog_spark.typed.avro.resolving_decoder import AvroResolvingDecoder
from kafkalog_spark.typed.avro.schema import parse_schema
from kafkalog_spark.typed.avro.types import columns_of
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.decoder import Decoded
from tests.spark.helpers.spark_functions import frame_of
from tests.spark_session import new_session
from tests.typed.canonical import canonical
from tests.typed.random_avro import Case, cases
from tests.typed.random_rows import Limits, random_rows

_DOCUMENTED = ("a length below 0", "a decimal with more digits", "milliseconds that are too many")
"""Why a value is bad that Spark reads: see "Values on which the two differ" in docs/typed_binary.md."""


_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{of}.maxLength={1 << 26}" for of in ("bytes", "string", "collectionItems")
)
"""Without them a length that lies makes Avro ask for gigabytes, and a task that dies of that never ends."""


_ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")
"""Of the session, on which no value depends."""


def _types(type_: pa.DataType) -> pa.DataType:
    """A type with the session's zone as UTC, and names of elements and entries as Arrow's own."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp(type_.unit, type_.tz and "UTC")
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _types(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_types(type_.key_type), _types(type_.item_type))
    return pa.list_(_types(type_.value_type)) if pa.types.is_list(type_) else type_


def decoded(case: Case) -> Decoded:
    """What kafkalog makes of the values."""
    reader = parse_schema(case.reader)
    columns = columns_of(reader, read_options_of({}))
    decoder = AvroResolvingDecoder(reader, columns, read_options_of({}))
    entry = decoder.add_schema(parse_schema(case.writer))
    values = pa.array(case.values, pa.binary())
    found = decoder.decode(Values.of(values), np.full(len(values), entry))
    found.columns.validate()
    return found


def write(session: Any, rng: Random, count: int, result: dict[str, Any]) -> None:
    """Random rows, with the schema that to_avro makes of them and with one in which nothing may be null."""
    from pyspark.sql.avro.functions import to_avro

    # One entry in a map, because the order of several is that of Java's HashMap.
    limits = Limits(first_day=-4_000_000, last_day=6_000_000, entries=1)
    rows = random_rows(rng, count, limits).drop_null()
    if any('"' in field.name for field in rows.type):
        return  # no name of Avro's
    frame = frame_of(session, rows)
    for schema in (None, json.dumps(_turned(json.loads(AvroEncoder(None, pa.schema(list(rows.type))).schema_json)))):
        made = AvroEncoder(schema, pa.schema(list(rows.type)))
        theirs = frame.select(to_avro("row", made.schema_json).alias("v")).toArrow()["v"].to_pylist()
        for one, other in zip(made.encode(rows).to_pylist(), theirs, strict=True):
            result["written"] += 1
            if one != other:
                result["different"].append([made.schema_json, "written", one.hex(), other.hex()])


def _turned(schema: Any) -> Any:
    """With null as the first branch of unions, and times in milliseconds."""
    if isinstance(schema, list):
        return [_turned(one) for one in reversed(schema)]
    if not isinstance(schema, dict):
        return schema
    found = {key: _turned(one) if key in ("items", "values") else one for key, one in schema.items()}
    found["logicalType"] = schema.get("logicalType", "").replace("micros", "millis")
    if "fields" in schema:
        found["fields"] = [{**one, "type": _turned(one["type"])} for one in schema["fields"]]
    return {key: one for key, one in found.items() if one != ""}


def main() -> None:
    jar, seed, schemas, values = sys.argv[1], *map(int, sys.argv[2:])
    conf = {"spark.driver.extraClassPath": jar, "spark.driver.extraJavaOptions": _LIMITS}
    session = new_session("local[2]", conf, "OFF")
    from pyspark.sql.avro.functions import from_avro

    result: dict[str, Any] = {"values": 0, "bad": 0, "allowed": 0, "failfast": 0, "written": 0, "different": []}
    for n, case in enumerate(cases(seed, schemas, values)):
        session.conf.set("spark.sql.session.timeZone", _ZONES[n % len(_ZONES)])
        ours = decoded(case)
        frame = session.createDataFrame(pa.table({"v": pa.array(case.values, pa.binary())}))

        def read(data: Any, mode: str, case: Case = case) -> Any:
            options = {"mode": mode, "avroSchema": json.dumps(case.reader)}
            return data.select(from_avro("v", json.dumps(case.writer), options).alias("r"))

        table = read(frame, "PERMISSIVE").toArrow()
        if _types(ours.columns.type) != _types(table.schema.field("r").type):
            types = [str(ours.columns.type), str(table.schema.field("r").type)]
            result["different"].append([json.dumps(case.writer), json.dumps(case.reader), *types])
            continue
        rows, theirs = canonical(ours.columns), canonical(table["r"])
        bad = np.zeros(len(rows), np.bool_) if ours.bad is None else ours.bad
        result["values"] += len(rows)
        result["bad"] += int(bad.sum())
        same = [row == other for row, other in zip(rows, theirs, strict=True)]
        for i in np.flatnonzero(~np.array(same)):
            if bad[i] and any(why in ours.why(int(i)) for why in _DOCUMENTED):
                result["allowed"] += 1
            else:
                shown = [json.dumps(case.writer), case.values[i].hex(), repr(rows[i])[:500], repr(theirs[i])[:500]]
                result["different"].append(shown)
        good = pa.table({"v": pa.array([value for value, one in zip(case.values, bad, strict=True) if not one])})
        if good.num_rows:  # FAILFAST takes all that is good here, and the first that is bad fails it
            try:
                read(session.createDataFrame(good), "FAILFAST").write.format("noop").mode("overwrite").save()
            except Exception as error:  # noqa: BLE001  as below
                result["different"].append([json.dumps(case.writer), "FAILFAST", "good", str(error)[:500]])
        agreed = np.flatnonzero(bad & np.array(same))
        if len(agreed):
            first = pa.table({"v": pa.array([case.values[agreed[0]]], pa.binary())})
            try:
                read(session.createDataFrame(first), "FAILFAST").write.format("noop").mode("overwrite").save()
                result["different"].append([json.dumps(case.writer), case.values[agreed[0]].hex(), "bad", "FAILFAST"])
            except Exception as error:  # noqa: BLE001  py4j's, of a kind of its own for each Spark
                result["failfast"] += "Malformed" in str(error) or "MALFORMED" in str(error)
    rng = Random(seed)
    for _ in range(schemas):
        write(session, rng, values, result)
    print(json.dumps(result))
    session.stop()


if __name__ == "__main__":
    main()
