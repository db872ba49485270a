"""Reads random Protobuf messages with Spark's from_protobuf and with kafkalog, writes them again with to_protobuf and
with kafkalog, and prints where they differ.

    python -m tests.spark.processes.protobuf_oracle CLASSPATH SEED SCHEMAS VALUES

The last line is JSON: {"values": …, "bad": …, "failfast": …, "written": …, "different": [[options, value in hex, ours,
Spark's] …]}.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of
from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder
from tests.spark.helpers.spark_functions import frame_of
from tests.spark_session import new_session
from tests.typed.canonical import canonical
from tests.typed.given_formats import of_format
from tests.typed.random_protobuf import Case, cases

schema, decoder = of_format("protobuf")


def decoded(case: Case) -> Decoded:
    """What kafkalog makes of the values."""
    given = {"descriptors": case.descriptors, "messagename": "T.M0", **case.options}
    found = decoder(given, schema(given)).decode(pa.array(case.values, pa.binary()))
    found.columns.validate()
    return found


def read(session: Any, case: Case, values: list[bytes], mode: str) -> Any:
    """What from_protobuf makes of values, as the column `r`."""
    from pyspark.sql.protobuf.functions import from_protobuf
    from pyspark.sql.types import StructType

    data = session.createDataFrame(pa.table({"v": pa.array(values, pa.binary())}))
    options = {"mode": mode, **case.options}
    found = data.select(from_protobuf("v", "T.M0", options=options, binaryDescriptorSet=case.descriptors).alias("r"))
    # required fields are null in a bad value all the same, which toArrow does not take
    anything = json.loads(re.sub(r'("nullable"|[cC]ontainsNull"): ?false', r"\1:true", found.schema.json()))
    return found.select(found["r"].cast(StructType.fromJson(anything)["r"].dataType))


def failure(session: Any, case: Case, values: list[bytes]) -> str | None:
    """The error that FAILFAST ends with, None for values that it takes."""
    try:
        read(session, case, values, "FAILFAST").write.format("noop").mode("overwrite").save()
    except Exception as error:  # noqa: BLE001  py4j's, of a kind of its own for each Spark
        return str(error)
    return None


def compare(session: Any, case: Case, result: dict[str, Any]) -> None:
    """Count the values of a case, and note those that differ."""
    ours, table = decoded(case), read(session, case, case.values, "PERMISSIVE").toArrow()
    shown = [json.dumps(case.options), base64.b64encode(case.descriptors).decode()]
    rows, theirs = canonical(ours.columns), canonical(table["r"])
    types = shape(ours.columns.type), shape(table.schema.field("r").type)
    if types[0] != types[1]:
        result["different"].append([*shown, *types])
    bad = np.zeros(len(rows), np.bool_) if ours.bad is None else ours.bad
    result["values"] += len(rows)
    result["bad"] += int(bad.sum())
    for i, (row, other) in enumerate(zip(rows, theirs, strict=True)):
        if row != other:
            why = ours.why(i) if bad[i] else ""
            result["different"].append([*shown, case.values[i].hex(), repr(row)[:700], repr(other)[:700], why])
    # FAILFAST takes all that is good here, and the first that is bad fails it
    good = [value for value, one in zip(case.values, bad, strict=True) if not one]
    if good and (error := failure(session, case, good)) is not None:
        result["different"].append([*shown, "FAILFAST", "good", error[:500]])
    if bad.any():
        value = case.values[int(np.flatnonzero(bad)[0])]
        error = failure(session, case, [value]) or "it takes what is bad here"
        if "MALFORMED" in error.upper():
            result["failfast"] += 1
        else:
            result["different"].append([*shown, value.hex(), "FAILFAST", error[:500]])


def write(session: Any, case: Case, result: dict[str, Any]) -> None:
    """Write what was read, but timestamps, of which Spark writes milliseconds, and rows that Spark or ours refuses."""
    from pyspark.sql.protobuf.functions import to_protobuf

    read = decoded(case)
    good = np.ones(len(case.values), np.bool_) if read.bad is None else ~read.bad
    rows = read.columns.filter(pa.array(good))
    pool, names = pool_of(case.descriptors, "a random descriptor set")
    if not len(rows) or "timestamp" in str(rows.type):
        return
    try:
        encoder = ProtobufEncoder(message_of(pool, names, "T.M0", ""), pa.schema(list(rows.type)))
        ours = encoder.encode(rows).to_pylist()
    except KafkalogError:  # a required field that is null, or was cut off
        return
    made = frame_of(session, rows).select(to_protobuf("row", "T.M0", binaryDescriptorSet=case.descriptors).alias("v"))
    try:
        theirs = made.toArrow()["v"].to_pylist()
    except Exception as error:
        # the number of an enum that has no name, and a uint64 beyond bigint: read by both, written by ours
        if "ENUM_TYPE" in str(error) or "BigInteger out of long range" in str(error):
            return
        raise
    for one, other in zip(ours, theirs, strict=True):
        result["written"] += 1
        if one != other:
            descriptors = base64.b64encode(case.descriptors).decode()
            result["different"].append([json.dumps(case.options), descriptors, "written", one.hex(), other.hex()])


def shape(type_: pa.DataType) -> str:
    """A type without whether its parts may be null, which Spark knows better of some."""
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {shape(field.type)}' for field in type_)}>"
    if pa.types.is_map(type_):
        return f"map<{shape(type_.key_type)}, {shape(type_.item_type)}>"
    return f"list<{shape(type_.value_type)}>" if pa.types.is_list(type_) else str(type_)


def main() -> None:
    jars, seed, schemas, values = sys.argv[1], *map(int, sys.argv[2:])
    session = new_session("local[2]", {"spark.driver.extraClassPath": jars, "spark.sql.session.timeZone": "UTC"}, "OFF")
    result: dict[str, Any] = {"values": 0, "bad": 0, "failfast": 0, "written": 0, "different": []}
    for case in cases(seed, schemas, values):
        compare(session, case, result)
        write(session, case, result)
    print(json.dumps(result))
    session.stop()


if __name__ == "__main__":
    main()
