"""The state of a broker, and the reason why it is not ready."""

from __future__ import annotations

from kafkalog_broker.runtime.lifecycle import BrokerState, Lifecycle


def test_not_ready_gives_the_reason_of_the_failure() -> None:
    lifecycle = Lifecycle()
    lifecycle.enter(BrokerState.RECOVERY)
    lifecycle.enter(BrokerState.RUNNING)
    assert lifecycle.not_ready_reason() == "groups and transactions are being loaded"
    lifecycle.fail("the mirror of kafka1:9092 cannot continue")
    assert lifecycle.not_ready_reason() == "the mirror of kafka1:9092 cannot continue"


def test_not_ready_names_the_log_directories_if_all_have_failed() -> None:
    lifecycle = Lifecycle()
    lifecycle.failed.set()
    assert lifecycle.not_ready_reason() == "all log directories have failed"
