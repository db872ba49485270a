"""kio-like classes for the versions that kio lacks: Produce 0-2, Fetch 0-3, ListOffsets 0, OffsetCommit 0-1,
OffsetFetch 0. Kafka 4.0 removed them (KIP-896), and kio is made from Kafka's current definitions.

They are written after the protocol guides: a line below is a production of their grammar. Fields are called as in the
version that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, make_dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

_PRIMITIVES: Mapping[str, Any] = {
    "int8": i8, "int16": i16, "int32": i32, "int64": i64, "string": str, "nullable_string": str | None,
    "nullable_bytes": bytes | None, "error_code": ErrorCode, "timedelta_i32": i32Timedelta,
}  # fmt: skip
_WIRE = {"nullable_string": "string", "nullable_bytes": "records"}
"""kio's names of what may be null, where they are not the same."""

_MESSAGE_SETS = "PartitionProduceData => index:int32 records:nullable_bytes; TopicProduceData => name:string"
_FETCHED_PARTITION = (
    "PartitionData => partition_index:int32 error_code:error_code high_watermark:int64 records:nullable_bytes; "
    "FetchableTopicResponse => topic:string partitions:[PartitionData]; "
)
_TO_FETCH = (
    "FetchPartition => partition:int32 fetch_offset:int64 partition_max_bytes:int32; "
    "FetchTopic => topic:string partitions:[FetchPartition]; "
    "FetchRequest => replica_id:int32 max_wait:timedelta_i32 min_bytes:int32 "
)
_PRODUCED_PARTITION = "PartitionProduceResponse => index:int32 error_code:error_code base_offset:int64"
_PRODUCED = (
    "; TopicProduceResponse => name:string partition_responses:[PartitionProduceResponse]; "
    "ProduceResponse => responses:[TopicProduceResponse] "
)
_COMMITTED = (
    "OffsetCommitResponsePartition => partition_index:int32 error_code:error_code; "
    "OffsetCommitResponseTopic => name:string partitions:[OffsetCommitResponsePartition]; "
    "OffsetCommitResponse => topics:[OffsetCommitResponseTopic]"
)
_TO_COMMIT = "OffsetCommitRequestTopic => name:string partitions:[OffsetCommitRequestPartition]; "

_GRAMMAR: dict[tuple[int, EntityType, tuple[int, ...]], str] = {
    (0, EntityType.request, (0, 1, 2)): _MESSAGE_SETS
    + " partition_data:[PartitionProduceData]; "
    + "ProduceRequest => acks:int16 timeout:timedelta_i32 topic_data:[TopicProduceData]",
    (0, EntityType.response, (0,)): _PRODUCED_PARTITION + _PRODUCED,
    (0, EntityType.response, (1,)): _PRODUCED_PARTITION + _PRODUCED + "throttle_time:timedelta_i32",
    (0, EntityType.response, (2,)): (
        _PRODUCED_PARTITION + " log_append_time:int64" + _PRODUCED + "throttle_time:timedelta_i32"
    ),
    (1, EntityType.request, (0, 1, 2)): _TO_FETCH + "topics:[FetchTopic]",
    (1, EntityType.request, (3,)): _TO_FETCH + "max_bytes:int32 topics:[FetchTopic]",
    (1, EntityType.response, (0,)): _FETCHED_PARTITION + "FetchResponse => responses:[FetchableTopicResponse]",
    (1, EntityType.response, (1, 2, 3)): (
        _FETCHED_PARTITION + "FetchResponse => throttle_time:timedelta_i32 responses:[FetchableTopicResponse]"
    ),
    (2, EntityType.request, (0,)): (
        "ListOffsetsPartition => partition_index:int32 timestamp:int64 max_num_offsets:int32; "
        "ListOffsetsTopic => name:string partitions:[ListOffsetsPartition]; "
        "ListOffsetsRequest => replica_id:int32 topics:[ListOffsetsTopic]"
    ),
    (2, EntityType.response, (0,)): (
        "ListOffsetsPartitionResponse => partition_index:int32 error_code:error_code old_style_offsets:[int64]; "
        "ListOffsetsTopicResponse => name:string partitions:[ListOffsetsPartitionResponse]; "
        "ListOffsetsResponse => topics:[ListOffsetsTopicResponse]"
    ),
    (8, EntityType.request, (0,)): (
        "OffsetCommitRequestPartition => partition_index:int32 committed_offset:int64 "
        "committed_metadata:nullable_string; "
        + _TO_COMMIT
        + "OffsetCommitRequest => group_id:string topics:[OffsetCommitRequestTopic]"
    ),
    (8, EntityType.request, (1,)): (
        "OffsetCommitRequestPartition => partition_index:int32 committed_offset:int64 commit_timestamp:int64 "
        "committed_metadata:nullable_string; "
        + _TO_COMMIT
        + "OffsetCommitRequest => group_id:string generation_id_or_member_epoch:int32 member_id:string "
        "topics:[OffsetCommitRequestTopic]"
    ),
    (8, EntityType.response, (0, 1)): _COMMITTED,
    (9, EntityType.request, (0,)): (
        "OffsetFetchRequestTopic => name:string partition_indexes:[int32]; "
        "OffsetFetchRequest => group_id:string topics:[OffsetFetchRequestTopic]"
    ),
    (9, EntityType.response, (0,)): (
        "OffsetFetchResponsePartition => partition_index:int32 committed_offset:int64 metadata:nullable_string "
        "error_code:error_code; "
        "OffsetFetchResponseTopic => name:string partitions:[OffsetFetchResponsePartition]; "
        "OffsetFetchResponse => topics:[OffsetFetchResponseTopic]"
    ),
}
"""(API key, request or response, versions): productions in the order they are needed in; the last is the message."""

VERSIONS: Mapping[int, range] = {0: range(3), 1: range(4), 2: range(1), 8: range(2), 9: range(1)}


@cache
def guide_classes(api_key: int, version: int, kind: EntityType) -> SimpleNamespace | None:
    """The message's class as `message`, and its structs by name; None where kio has them."""
    if version not in VERSIONS.get(api_key, ()):
        return None
    grammar = next(
        text for (key, of, known), text in _GRAMMAR.items() if (key, of) == (api_key, kind) and version in known
    )
    constants = {
        "__module__": __name__, "__version__": i16(version), "__flexible__": False, "__api_key__": i16(api_key),
        "__header_schema__": RequestHeader if kind is EntityType.request else ResponseHeader,
    }  # fmt: skip
    made: dict[str, Any] = {}
    productions = grammar.split(";")
    for number, production in enumerate(productions, 1):
        name, _, fields = production.strip().partition(" => ")
        columns: list[Any] = [_field(one, made) for one in fields.split()]
        names = {**constants, "__type__": kind if number == len(productions) else EntityType.nested}
        made[name] = make_dataclass(name, columns, namespace=names, frozen=True, slots=True, kw_only=True)
    return SimpleNamespace(message=made[name], **made)


def _field(text: str, known: Mapping[str, Any]) -> tuple[str, Any, Any]:
    name, kind = text.split(":")
    element = kind.removeprefix("[").removesuffix("]")
    if element in known:
        return name, tuple[known[element], ...], field()  # type: ignore[valid-type]
    of: Any = _PRIMITIVES[element]
    metadata = {"kafka_type": _WIRE.get(element, element)}
    return name, tuple[of, ...] if kind.startswith("[") else of, field(metadata=metadata)
