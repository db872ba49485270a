"""Responses with one result for each item that the request names.

A request may name thousands of items, so results are made in time slices, between which other requests are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import entity, respond, result_layout, struct_of
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

PartitionResult = Callable[[Any, Any], Mapping[str, Any]]
"""Function that returns the fields of a partition's result, given its topic struct and its struct (or index).

Fields that identify the partition are added. If the function raises BrokerError, the result has its code and message.
"""


async def respond_by_partition(request: Request, result: PartitionResult, **fields: Any) -> Any:
    """Return the response to a request that names partitions by topic. `fields` are fields of the whole response."""
    request_struct: Any = type(request.entity)
    layout = result_layout(response_class(request.api_key, request.version), request_struct)
    assert layout.results is not None
    topics = getattr(request.entity, layout.request_array)
    return respond(request, **{layout.results: await topic_results(layout.element, topics, result)}, **fields)


async def respond_in_slices(request: Request, array: str, items: Iterable[Mapping[str, Any]], **fields: Any) -> Any:
    """Return the response whose `array` has a struct for each of `items`, which are made between time slices.

    A version without that array gets the other fields only.
    """
    struct = struct_of(response_class(request.api_key, request.version), array)
    structs = () if struct is None else [entity(struct, **item) async for item in TimeSlice().spread(items)]
    return respond(request, **{array: tuple(structs)}, **fields)


async def topic_results(struct: Any, topics: Iterable[Any], result: PartitionResult) -> list[Any]:
    """Return a response struct of class `struct` for each topic of a request, with the results of its partitions."""
    time_slice = TimeSlice()
    results = []
    async for topic in time_slice.spread(topics):
        topic_struct: Any = type(topic)
        layout = result_layout(struct, topic_struct)
        partitions = []
        async for partition in time_slice.spread(getattr(topic, layout.request_array)):
            partition_struct: Any = type(partition)
            copied_fields = result_layout(layout.element, partition_struct).copied_fields
            fields = {name: getattr(partition, name, partition) for name in copied_fields}
            try:
                fields |= result(topic, partition)
            except BrokerError as error:
                fields |= {"error_code": error.code, "error_message": error.what}
            partitions.append(entity(layout.element, **fields))
        topic_fields = {name: getattr(topic, name) for name in layout.copied_fields}
        results.append(entity(struct, **topic_fields, **{layout.results or "": partitions}))
    return results
