"""Types that Spark hands to writes, as those that reading gives."""

from __future__ import annotations

import pyarrow as pa


def as_decoded(kind: pa.DataType) -> pa.DataType:
    """The type of a column that is decoded to hold the same: timestamps of UTC (moments are the same in every zone),
    and no large strings."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_decoded(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(as_decoded(kind.key_type), kind.item_field.with_type(as_decoded(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_decoded(kind.value_type)))
    if pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind
