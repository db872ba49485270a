"""Responses to requests that failed as a whole, for any API and version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_mapping import request_mapping
from kafkalog_spark.format.messages.classes import StructValue

_ELECT_LEADERS, _ALTER_PARTITION_REASSIGNMENTS = 43, 45
_APIS_WITH_ERRORS_ON_BOTH_LEVELS = frozenset({_ELECT_LEADERS, _ALTER_PARTITION_REASSIGNMENTS})
"""APIs that report the error for the whole request and for each partition."""


def error_response(request: Request, code: ErrorCode, message: str | None = None) -> Any:
    """Build the response to a request that failed as a whole.

    The error code is that of the whole response if its version has one, otherwise that of each item of the request.
    """
    on_both_levels = request.api_key in _APIS_WITH_ERRORS_ON_BOTH_LEVELS
    struct_class = response_class(request.api_key, request.version)
    (response,) = _error_structs(struct_class, (request.entity,), code, message, on_both_levels=on_both_levels)
    return response


def _error_structs(
    struct_class: Any, items: Sequence[Any], code: ErrorCode, message: str | None, *, on_both_levels: bool
) -> tuple[Any, ...]:
    """Build a struct with the error for each of `items`: request structs, or plain values (numbers, names)."""
    if not items:
        return ()
    request_class: Any = type(items[0])  # Any, because mypy does not consider a class hashable
    mapping = request_mapping(struct_class, request_class)
    is_struct = issubclass(request_class, StructValue)
    common: dict[str, Any] = dict.fromkeys(mapping.error_fields, code)
    if "error_message" in struct_class._fields:
        common["error_message"] = message
    structs = []
    for item in items:
        # A plain value is itself the value of the field. It may have an attribute of that name, as `str.partition`.
        values = common | {name: getattr(item, name) if is_struct else item for name in mapping.copied_fields}
        if mapping.results is not None and (on_both_levels or not mapping.error_fields):
            nested_items = getattr(item, mapping.request_array) or ()
            values[mapping.results] = _error_structs(
                mapping.result_class, nested_items, code, message, on_both_levels=on_both_levels
            )
        structs.append(struct_class(**values))
    return tuple(structs)
