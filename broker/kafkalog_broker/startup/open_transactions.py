"""Completion of open transactions after an unclean stop (transactions/unclean_start.py)."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.startup.loaded_logs import LoadedLogs
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.unclean_start import UncleanStart


async def settle_transactions(
    loaded: LoadedLogs, transactions: TransactionCoordinator, clock: Clock, workers: Workers
) -> None:
    """Commit or abort open transactions before the broker serves, so that no client sees an undecided one."""
    await transactions.runtime.load_owned(workers.run_blocking, "transactions")
    logs = await workers.run_blocking(_online_logs, loaded.logs)
    is_state_complete = loaded.state_partitions >= len(transactions.runtime.log.owned())
    await UncleanStart(transactions, clock).settle(logs, workers.run_blocking, is_state_complete=is_state_complete)


def _online_logs(logs: LogManager) -> list[Log]:
    """Return the logs of all online partitions, also those in directories that were closed cleanly."""
    online = []
    for key in logs.partitions():
        try:
            log = logs.get(*key)
        except BrokerError as error:
            if is_transient(error):
                raise
            continue  # offline
        if log is not None:
            online.append(log)
    return online
