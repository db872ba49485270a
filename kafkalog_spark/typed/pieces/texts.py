"""Pieces of texts."""

from __future__ import annotations

import pyarrow as pa

from kafkalog_spark.typed.java_text import java_decoded


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def well_formed(texts: pa.Array) -> pa.Array:
    """The texts with what is not UTF-8 replaced, as Spark's UTF8String.toString does. Spark hands strings over as they
    are."""
    plain = pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
    as_bytes = pa.Array.from_buffers(plain, len(texts), texts.buffers(), offset=texts.offset)
    try:
        as_bytes.cast(texts.type)
    except pa.ArrowInvalid:
        return pa.array([None if one is None else java_decoded(one) for one in as_bytes.to_pylist()], texts.type)
    return texts
