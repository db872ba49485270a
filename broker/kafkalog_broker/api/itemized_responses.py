"""Responses with one result for each item that the request names.

A request may name thousands of items, so results are made in time slices, between which other requests are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_mapping import request_mapping
from kafkalog_broker.protocol.responses import array_element_class, build_response, build_struct
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

PartitionResult = Callable[[Any, Any], Mapping[str, Any]]
"""Function that returns the fields of a partition's result, given its topic struct and its struct (or index).

Fields that identify the partition are added. If the function raises BrokerError, the result has its code and message.
"""


async def respond_by_partition(request: Request, result: PartitionResult, **fields: Any) -> Any:
    """Return the response to a request that names partitions by topic. `fields` are fields of the whole response."""
    request_class: Any = type(request.entity)
    mapping = request_mapping(response_class(request.api_key, request.version), request_class)
    assert mapping.results is not None
    topics = getattr(request.entity, mapping.request_array)
    return build_response(
        request, **{mapping.results: await topic_results(mapping.result_class, topics, result)}, **fields
    )


async def respond_in_slices(request: Request, array: str, items: Iterable[Mapping[str, Any]], **fields: Any) -> Any:
    """Return the response whose `array` has a struct for each of `items`, which are made between time slices.

    A version without that array gets the other fields only.
    """
    struct = array_element_class(response_class(request.api_key, request.version), array)
    structs = () if struct is None else [build_struct(struct, **item) async for item in TimeSlice().spread(items)]
    return build_response(request, **{array: tuple(structs)}, **fields)


async def topic_results(struct: Any, topics: Iterable[Any], result: PartitionResult) -> list[Any]:
    """Return a response struct of class `struct` for each topic of a request, with the results of its partitions."""
    time_slice = TimeSlice()
    results = []
    async for topic in time_slice.spread(topics):
        topic_class: Any = type(topic)
        mapping = request_mapping(struct, topic_class)
        partitions = []
        async for partition in time_slice.spread(getattr(topic, mapping.request_array)):
            partition_class: Any = type(partition)
            copied_fields = request_mapping(mapping.result_class, partition_class).copied_fields
            fields = {name: getattr(partition, name, partition) for name in copied_fields}
            try:
                fields |= result(topic, partition)
            except BrokerError as error:
                fields |= {"error_code": error.code, "error_message": error.what}
            partitions.append(build_struct(mapping.result_class, **fields))
        topic_fields = {name: getattr(topic, name) for name in mapping.copied_fields}
        results.append(build_struct(struct, **topic_fields, **{mapping.results or "": partitions}))
    return results
