"""Decoder of metrics in OpenTelemetry's format (OTLP).

Of the messages in opentelemetry/proto/metrics/v1 it knows only the fields that Kafka's clients use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

MAX_MESSAGES = 20_000
"""Upper bound of resources, scopes, metrics, points and attributes in one push; 500 series with 10 attributes each have
some 6,000. An empty message has 2 bytes but takes far longer to visit than to parse, so the size of the push does
not bound the time."""

DELTA = 1  # AggregationTemporality
_Field = FieldDescriptorProto
_MESSAGES: dict[str, dict[str, tuple[int, Any]]] = {
    "MetricsData": {"resource_metrics": (1, "ResourceMetrics")},
    "ResourceMetrics": {"scope_metrics": (2, "ScopeMetrics")},
    "ScopeMetrics": {"metrics": (2, "Metric")},
    "Metric": {"name": (1, _Field.TYPE_STRING), "gauge": (5, "Gauge"), "sum": (7, "Sum")},
    "Gauge": {"data_points": (1, "NumberDataPoint")},
    "Sum": {"data_points": (1, "NumberDataPoint"), "aggregation_temporality": (2, _Field.TYPE_INT32)},
    "NumberDataPoint": {
        "as_double": (4, _Field.TYPE_DOUBLE), "as_int": (6, _Field.TYPE_SFIXED64), "attributes": (7, "KeyValue"),
    },
    "KeyValue": {"key": (1, _Field.TYPE_STRING), "value": (2, "AnyValue")},
    "AnyValue": {
        "string_value": (1, _Field.TYPE_STRING), "bool_value": (2, _Field.TYPE_BOOL),
        "int_value": (3, _Field.TYPE_INT64), "double_value": (4, _Field.TYPE_DOUBLE),
    },
}  # fmt: skip
_EITHER = {"as_double", "as_int", "string_value", "bool_value", "int_value", "double_value"}
"""Fields of a oneof, whose presence is known even if the value is 0."""
_SINGULAR = {"gauge", "sum", "value"}  # message fields that are not repeated


class Point(NamedTuple):
    """A data point. `attributes` is `key=value,...` in the order of the client. If `is_delta`, the value is an increase
    since the last push."""

    name: str
    attributes: str
    value: float
    is_delta: bool


def points(data: bytes) -> Iterator[Point]:
    """Yield the points of an encoded MetricsData.

    Raises:
        ValueError: `data` is not a MetricsData (before the first point), or it has more than MAX_MESSAGES messages.
    """
    from google.protobuf.message import DecodeError

    try:
        message = _metrics_data().FromString(data)
    except DecodeError as error:
        raise ValueError(f"not metrics in OpenTelemetry's format: {error}") from None
    return _points(message)


def _points(message: Any) -> Iterator[Point]:
    messages_left = MAX_MESSAGES  # number of messages that may still be visited

    def counted(messages: Iterable[Any]) -> Iterator[Any]:
        nonlocal messages_left
        for nested in messages:
            messages_left -= 1
            if messages_left < 0:
                raise ValueError(f"more than {MAX_MESSAGES} resources, scopes, metrics, points and attributes")
            yield nested

    for resource in counted(message.resource_metrics):
        for scope in counted(resource.scope_metrics):
            for metric in counted(scope.metrics):
                name = metric.name
                is_delta = metric.sum.aggregation_temporality == DELTA
                for point in counted(chain(metric.gauge.data_points, metric.sum.data_points)):
                    value = float(point.as_int if point.WhichOneof("either") == "as_int" else point.as_double)
                    attributes = ",".join(f"{entry.key}={_text(entry.value)}" for entry in counted(point.attributes))
                    yield Point(name, attributes, value, is_delta)


def _text(value: Any) -> str:
    which = value.WhichOneof("either")
    return "" if which is None else str(getattr(value, which))


@cache
def _metrics_data() -> Any:
    file = FileDescriptorProto(name="kafkalog/otlp.proto", package="kafkalog.otlp", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = DescriptorProto(name=name)
        for field, (number, kind) in fields.items():
            descriptor = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
            if isinstance(kind, int):
                descriptor.type = kind
            else:
                descriptor.type = _Field.TYPE_MESSAGE
                descriptor.type_name = f".kafkalog.otlp.{kind}"
                descriptor.label = _Field.LABEL_OPTIONAL if field in _SINGULAR else _Field.LABEL_REPEATED
            if field in _EITHER:
                descriptor.oneof_index = 0
        if _EITHER & fields.keys():
            message.oneof_decl.add(name="either")
        file.message_type.append(message)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("kafkalog.otlp.MetricsData"))
