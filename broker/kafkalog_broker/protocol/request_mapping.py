"""Which fields of a response struct are filled from the request struct that it answers."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from kafkalog_broker.protocol.responses import struct_fields
from kafkalog_spark.format.messages.classes import StructValue

_COPIED_FIELDS = frozenset({
    "allow_replication_factor_change", "group_id", "name", "partition", "partition_id", "partition_index", "topic",
    "topic_id", "topic_name",
})  # fmt: skip
"""Fields that are copied from the request. Most of them identify the item to which a result belongs."""


class RequestMapping(NamedTuple):
    """How to fill a response struct from the request struct it answers.

    Attributes:
        error_fields: Names of the fields that are error codes.
        copied_fields: Names of the fields whose values are those of the request.
        results: Response array with one struct per element of `request_array`, or None.
        result_class: Class of the structs in `results`.
        request_array: Array of the request.
    """

    error_fields: tuple[str, ...]
    copied_fields: tuple[str, ...]
    results: str | None = None
    result_class: Any = None
    request_array: str = ""


@cache
def request_mapping(struct_class: Any, request_class: Any) -> RequestMapping:
    """Return how to fill a response struct from the request item that it answers.

    Args:
        struct_class: Class of the response struct.
        request_class: Class of the request struct; int, str or another type if the request has plain values.
    """
    fields = struct_class._struct.present
    error_fields = tuple(field.name for field in fields if field.type == "error_code")
    is_plain_value = not issubclass(request_class, StructValue)
    request_fields = () if is_plain_value else request_class._struct.present
    request_names = {field.name for field in request_fields}
    copied_fields = tuple(
        field.name
        for field in fields
        if field.name in _COPIED_FIELDS and (is_plain_value or field.name in request_names)
    )
    # Kafka's requests name the items of their results in their first array. The array of results is the first one of
    # the response whose structs identify an item.
    request_array = next((field.name for field in request_fields if field.is_array), None)
    for name, result_class, is_array in struct_fields(struct_class).nested:
        identifies_item = is_array and result_class is not None and _COPIED_FIELDS & struct_fields(result_class).names
        if request_array is not None and identifies_item:
            return RequestMapping(error_fields, copied_fields, name, result_class, request_array)
    return RequestMapping(error_fields, copied_fields)
