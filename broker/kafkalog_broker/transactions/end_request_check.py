"""Check of an EndTxn request against the state of the transaction (Kafka's TransactionCoordinator.endTransaction).

With transaction version CLASSIC the epoch of the request must be the epoch of the producer. After a transaction has
ended, a request for the same outcome is accepted as a repetition.

With EPOCH_BUMP (KIP-890) each end increments the epoch, so a repeated request, whose epoch is one lower, differs from a
new one:

| state          | abort, repeated   | abort             | commit, repeated  | commit            |
|---|---|---|---|---|
| Empty          | PRODUCER_FENCED   | prepare           | PRODUCER_FENCED   | INVALID_TXN_STATE |
| CompleteAbort  | repeated response | prepare           | INVALID_TXN_STATE | INVALID_TXN_STATE |
| CompleteCommit | INVALID_TXN_STATE | prepare           | repeated response | INVALID_TXN_STATE |
"""

from __future__ import annotations

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import EPOCH_BUMP, LAST_EPOCH, TransactionMetadata
from kafkalog_broker.transactions.transaction_state import TransactionState

# States, each with the value of `commit` in a request for that outcome.
_COMPLETED = {(TransactionState.COMPLETE_COMMIT, True), (TransactionState.COMPLETE_ABORT, False)}
_PREPARED = {(TransactionState.PREPARE_COMMIT, True), (TransactionState.PREPARE_ABORT, False)}


def must_prepare_end(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
) -> bool:
    """Return True if the outcome has to be prepared, and False if the request repeats one that is completed.

    Raises:
        BrokerError: invalid_producer_id_mapping, producer_fenced, concurrent_transactions or invalid_txn_state.
    """
    state = metadata.state
    bumps_epoch = client_version >= EPOCH_BUMP
    is_current = metadata.producer_epoch == producer.epoch
    is_repeated = bumps_epoch and metadata.producer_epoch == producer.epoch + 1
    # The response to a request with the last epoch contains the next producer ID with epoch 0.
    is_repeated_with_last_epoch = (
        bumps_epoch
        and metadata.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH
        and metadata.producer_epoch == 0
    )
    if producer.producer_id != metadata.producer_id and not is_repeated_with_last_epoch:
        raise metadata.wrong_producer_id_error(producer.producer_id)
    if state in (TransactionState.ONGOING, TransactionState.EMPTY) or not bumps_epoch:
        is_valid_epoch = is_current
    elif state.is_prepared:
        is_valid_epoch = is_repeated
    else:
        is_valid_epoch = is_repeated or is_repeated_with_last_epoch or is_current
    if not is_valid_epoch:
        raise metadata.fenced_error(producer.epoch)
    is_new = not (is_repeated or is_repeated_with_last_epoch)
    if state is TransactionState.ONGOING:
        return True
    if (state, commit) in _COMPLETED and not (bumps_epoch and is_new):
        return False
    if bumps_epoch and not commit and state.may_expire and (is_new or state is TransactionState.EMPTY):
        return True  # the producer cannot know whether any part of its transaction has arrived
    if (state, commit) in _PREPARED:
        raise metadata.concurrent_error()
    message = f"there is nothing to {'commit' if commit else 'abort'}"
    raise BrokerError(
        ErrorCode.invalid_txn_state, f"transactional id {metadata.transactional_id!r} is {state.label}: {message}"
    )
