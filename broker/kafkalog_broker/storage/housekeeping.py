"""What is done to the logs now and then, and when it is due (LogManager.startup's schedule)."""

from __future__ import annotations

from enum import Enum

from kafkalog_broker.config.broker_config import BrokerConfig


class Task(Enum):
    """The value is the attribute of BrokerConfig that holds the interval in ms."""

    RETENTION = "log_retention_check_interval_ms"
    RECOVERY_POINTS = "log_flush_offset_checkpoint_interval_ms"
    LOG_START_OFFSETS = "log_flush_start_offset_checkpoint_interval_ms"
    HIGH_WATERMARKS = "replica_high_watermark_checkpoint_interval_ms"
    PRODUCER_EXPIRATION = "producer_id_expiration_check_interval_ms"


CHECKPOINTS = frozenset({Task.RECOVERY_POINTS, Task.LOG_START_OFFSETS, Task.HIGH_WATERMARKS})


class Timers:
    """When each task was done last, by Clock.monotonic_ms: Kafka schedules by System.nanoTime."""

    def __init__(self, now_ms: int) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        """Everything is due one interval from now."""
        self._last = dict.fromkeys(Task, now_ms)

    def due(self, config: BrokerConfig, now_ms: int) -> set[Task]:
        """What is due now by the intervals in `config`, and counts as done now."""
        due = {task for task, last in self._last.items() if now_ms - last >= getattr(config, task.value)}
        self._last.update(dict.fromkeys(due, now_ms))
        return due
