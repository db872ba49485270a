"""66 ListTransactions, versions 0 to 2: the transactional IDs that the sender may describe, filtered (KIP-664).

v1  filter by the time for which a transaction has been open
v2  filter by a regular expression for the ID (KIP-1152): INVALID_REGULAR_EXPRESSION
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.transactions.transaction_metadata import TransactionMetadata
from kafkalog_broker.transactions.transaction_state import STATES_BY_LABEL


@api(66, 0, 2)
def list_transactions(request: Request, broker: Broker) -> Any:
    body = request.entity
    listed = broker.transactions.all_metadata()
    if body.state_filters:
        states = {STATES_BY_LABEL[name] for name in body.state_filters if name in STATES_BY_LABEL}
        listed = [metadata for metadata in listed if metadata.state in states]
    if body.producer_id_filters:
        producer_ids = set(body.producer_id_filters)
        listed = [metadata for metadata in listed if metadata.producer_id in producer_ids]
    duration_ms = body.duration_filter
    if duration_ms >= 0:
        # As in Kafka, a transaction that has not begun has the start time -1 and so passes the filter.
        now_ms = broker.clock.now_ms()
        listed = [metadata for metadata in listed if now_ms - metadata.start_ms > duration_ms]
    if pattern := body.transactional_id_pattern:
        listed = _matching(listed, pattern)
    transactions = [
        {"transactional_id": metadata.transactional_id, "producer_id": metadata.producer_id,
         "transaction_state": metadata.state.label}
        for metadata in listed
        if request.access is None or not request.authorization_error(metadata.transactional_id, quiet=True)
    ]  # fmt: skip
    unknown_states = [name for name in body.state_filters if name not in STATES_BY_LABEL]
    return build_response(request, unknown_state_filters=unknown_states, transaction_states=transactions)


def _matching(transactions: Sequence[TransactionMetadata], pattern: str) -> list[TransactionMetadata]:
    """Return the transactions whose whole ID matches an RE2 pattern. Raises BrokerError for an invalid pattern.

    Kafka uses RE2 too. Python's `re` is no alternative, because a client could send a pattern that takes forever.
    """
    import pyarrow as pa  # imported here because the broker starts without it
    import pyarrow.compute as pc

    ids = pa.array([metadata.transactional_id for metadata in transactions], pa.string())
    try:
        # The pattern must be valid by itself: a parenthesis in it must not close the group below.
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        try:
            matches = pc.match_substring_regex(ids, pattern=rf"\A(?:{pattern})\z")
        except pa.ArrowInvalid:  # it may end in a literal text \Q..., in which the parenthesis is part of the text
            matches = pc.match_substring_regex(ids, pattern=rf"\A(?:{pattern}\E)\z")
    except pa.ArrowInvalid as error:
        raise BrokerError(
            ErrorCode.invalid_regular_expression, f"{pattern!r} is not a valid RE2 expression: {error}"
        ) from None
    return [metadata for metadata, matched in zip(transactions, matches.to_pylist(), strict=True) if matched]
