"""Predicates of Arrow types that cover both the plain and the large variant."""

from __future__ import annotations

import pyarrow as pa


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
