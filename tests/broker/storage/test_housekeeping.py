from __future__ import annotations

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.storage.housekeeping import CHECKPOINTS, Task, Timers


def test_housekeeping_task_is_due_at_its_own_interval():
    config = BrokerConfig.from_properties({"log.retention.check.interval.ms": 7000})
    timers = Timers(100)
    assert timers.start_due(config, 5099) == set()
    assert timers.start_due(config, 5100) == {Task.HIGH_WATERMARKS}
    assert timers.start_due(config, 5101) == set()
    assert timers.start_due(config, 7100) == {Task.RETENTION}
    assert timers.start_due(config, 60_100) == {Task.RETENTION, *CHECKPOINTS}


def test_delayed_tick_runs_a_task_once():
    config, timers = BrokerConfig.from_properties({}), Timers(0)
    assert Task.HIGH_WATERMARKS in timers.start_due(config, 50_000)
    assert timers.start_due(config, 54_999) == set()


def test_every_housekeeping_task_has_a_configured_interval():
    config = BrokerConfig.from_properties({})
    assert all(getattr(config, task.value) > 0 for task in Task)
