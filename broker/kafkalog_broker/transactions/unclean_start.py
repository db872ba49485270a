"""Settlement of transactions after an unclean start: a power cut may have removed the last records from the logs of
partitions and from __transaction_state, in each log from a different time on.

With the default flush policy a partition's records can reach the disk without the coordinator's. Then a log may have
an open transaction that no coordinator will end (a hanging transaction, KIP-664), or producer epochs that the
coordinator would assign a second time. `UncleanStart.settle` runs before the broker serves clients and before any
transaction is completed:

- If the coordinator will end an open transaction with the right outcome, it is left open until then.
- If the transaction is open in the coordinator but does not include the partition, the partition is added to it.
- Any other open transaction is ended. It is committed only if a record of __transaction_state, or a marker of the same
  transaction in another log, proves that it was committed. Otherwise it is aborted with a higher epoch, so that a
  producer that is still writing is fenced.
- The coordinator's epoch of a producer ID is raised to the highest one in the logs. With a repeated epoch, new batches
  would look like duplicates of earlier ones.

Since KIP-890 each end increments the epoch, so producer ID and epoch identify a transaction, and its marker has the
next epoch. Before KIP-890 all transactions of a producer have the same epoch. Then the time of an outcome determines
whether it belongs to the open transaction or to an earlier one.

`transaction_evidence.py` reads the logs, `unclean_start_plan.py` decides, and this file carries out the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_evidence import ProducerInLog, ProducerStates
from kafkalog_broker.transactions.transaction_metadata import (
    CLASSIC,
    EPOCH_BUMP,
    NOT_STARTED,
    TopicPartition,
    TransactionMetadata,
)
from kafkalog_broker.transactions.transaction_state import TransactionState
from kafkalog_broker.transactions.unclean_start_plan import PlannedMarker, UncleanStartPlan
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ControlType

_log = logging.getLogger(__name__)


class UncleanStart:
    """Settles the transactions of one start. Used once, in the event loop, before the broker serves clients."""

    def __init__(self, coordinator: TransactionCoordinator, clock: Clock) -> None:
        """`coordinator` must have loaded all partitions of __transaction_state that can be loaded."""
        self._coordinator = coordinator
        self._clock = clock

    async def settle(
        self, logs: Sequence[Log], run_blocking: Callable[..., Awaitable[None]], *, is_state_complete: bool = True
    ) -> None:
        """End the open transactions of `logs` that the coordinator will not end correctly.

        Args:
            logs: All logs of this broker.
            run_blocking: Runs a function in a thread.
            is_state_complete: False if partitions of __transaction_state are missing, so that outcomes may be unknown.
                Then open transactions are only logged.
        """
        metadata_by_producer = {metadata.producer_id: metadata for metadata in self._coordinator.loaded_metadata()}
        states = ProducerStates.collect(logs, set(metadata_by_producer))
        if not (is_state_complete and self._is_loaded()):
            for state in states.with_open_transaction:
                _warn_of_unsettled(state)
            return
        plan = UncleanStartPlan(metadata_by_producer, states)
        if states.with_open_transaction or plan.lost_ends:
            producer_ids = {state.producer.id for state in states.with_open_transaction}
            await run_blocking(plan.decide, self._scan, producer_ids)
        for marker in plan.markers:
            self._write_marker(marker)
        for transactional_id, added in plan.added_partitions.items():
            self._change(transactional_id, self._add_partitions, added)
        for transactional_id, commit in plan.ended.items():
            self._change(transactional_id, self._end, commit)
        self._raise_epochs(ProducerStates.collect(logs, set(metadata_by_producer)))

    def _is_loaded(self) -> bool:
        runtime = self._coordinator.runtime
        owned = runtime.log.owned()
        return bool(owned) and all(runtime.get_if_loaded(partition) is not None for partition in owned)

    def _scan(self) -> Iterator[CoordinatorBatch]:
        """Yield the batches of all partitions of __transaction_state."""
        state = self._coordinator.runtime.log
        return (batch for partition in state.owned() for batch in state.scan(partition))

    def _write_marker(self, marker: PlannedMarker) -> None:
        state = marker.producer_in_log
        control_type = ControlType.COMMIT if marker.commit else ControlType.ABORT
        _log.warning(
            "%s: the transaction of producer id %d, epoch %d, open since offset %d, is ended with %s: %s",
            state.partition, *state.id_and_epoch, state.producer.transaction_first_offset, control_type.name,
            marker.reason,
        )  # fmt: skip
        coordinator_epoch = max(state.producer.coordinator_epoch, 0)
        try:
            state.log.append_control(
                control_type, state.producer.id, marker.epoch, coordinator_epoch, self._clock.now_ms()
            )
        except BrokerError as error:
            _log.error("%s: the marker cannot be written: %s", state.partition, error)

    def _change(self, transactional_id: str, change: Callable[..., None], *arguments: object) -> None:
        """Call `change` with the metadata of an ID. An error is logged, and the ID stays as it is."""
        try:
            change(self._coordinator.describe(transactional_id), *arguments)
        except BrokerError as error:
            _log.error("transactional id %.200r cannot be settled after the unclean start: %s", transactional_id, error)

    def _add_partitions(self, metadata: TransactionMetadata, added: set[TopicPartition]) -> None:
        _log.warning(
            "transactional id %.200r: the open transaction of producer id %d, epoch %d has records in %s, which are "
            "added to it again",
            metadata.transactional_id, *metadata.producer, ", ".join(map(str, sorted(added))),
        )  # fmt: skip
        self._coordinator.write(metadata.with_partitions(added, metadata.client_version, self._clock.now_ms()))

    def _end(self, metadata: TransactionMetadata, commit: bool) -> None:
        _log.warning(
            "transactional id %.200r: the transaction of producer id %d, epoch %d is %s, because it had ended "
            "according to the logs of its partitions",
            metadata.transactional_id, *metadata.producer, "committed" if commit else "aborted",
        )  # fmt: skip
        version = metadata.client_version if commit else EPOCH_BUMP
        self._coordinator.end(metadata.transactional_id, metadata.producer, commit=commit, client_version=version)

    def _raise_epochs(self, states: ProducerStates) -> None:
        for metadata in self._coordinator.loaded_metadata():
            highest = states.highest_epoch(metadata.producer_id)
            if highest > metadata.producer_epoch:
                self._change(metadata.transactional_id, self._raise_epoch, highest)

    def _raise_epoch(self, metadata: TransactionMetadata, epoch: int) -> None:
        transactional_id = metadata.transactional_id
        if metadata.state is TransactionState.ONGOING:
            _log.error(
                "transactional id %.200r keeps its epoch, because its open transaction could not be ended",
                transactional_id,
            )
            return
        if metadata.state.is_prepared:
            marked = self._coordinator.write_markers(transactional_id)
            if not self._coordinator.complete(transactional_id, marked):
                _log.warning("transactional id %.200r keeps its epoch until its markers are written", transactional_id)
                return
            metadata = self._coordinator.describe(transactional_id)
            if epoch <= metadata.producer_epoch:
                return
        _log.warning(
            "transactional id %.200r: the epoch of producer id %d is raised from %d to %d, which is in the logs",
            transactional_id, *metadata.producer, epoch,
        )  # fmt: skip
        # Not a Complete state: at the next unclean start it would be taken as the outcome of a transaction with the
        # previous epoch.
        raised = replace(
            metadata, state=TransactionState.EMPTY, producer_epoch=epoch, partitions=frozenset(), start_ms=NOT_STARTED,
            last_update_ms=self._clock.now_ms(), next_producer_id=NO_PRODUCER_ID, client_version=CLASSIC,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )  # fmt: skip
        self._coordinator.write(raised)


def _warn_of_unsettled(state: ProducerInLog) -> None:
    first_offset = state.producer.transaction_first_offset
    _log.warning(
        "%s has a transaction of producer id %d, epoch %d, open since offset %d, and partitions of __transaction_state "
        "are missing here: read_committed consumers wait there. If no other broker ends it: "
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic %s --partition %d --start-offset %d",
        state.partition, *state.id_and_epoch, first_offset, *state.partition, first_offset,
    )  # fmt: skip
