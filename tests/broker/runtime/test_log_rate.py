from __future__ import annotations

import logging

import pytest

from kafkalog_broker.runtime.log_rate import LogRate


def test_lines_above_the_rate_are_suppressed_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    lines = LogRate(logging.getLogger("kafkalog.broker"), burst_lines=3, lines_per_s=2, clock=lambda: now[0])
    for number in range(10):
        lines.log(logging.WARNING, "refused %d", number)
    assert caplog.messages == ["refused 0", "refused 1", "refused 2"]
    now[0] = 0.5
    lines.log(logging.WARNING, "refused %d", 10)
    lines.log(logging.WARNING, "refused %d", 11)
    lines.report_suppressed()
    lines.report_suppressed()
    assert caplog.messages[3:] == [
        "7 similar lines were suppressed, above 2 a second",
        "refused 10",
        "1 similar lines were suppressed, above 2 a second",
    ]
    now[0] = 1000.0
    for number in range(20, 25):
        lines.log(logging.WARNING, "refused %d", number)
    assert caplog.messages[6:] == ["refused 20", "refused 21", "refused 22"]


def test_lines_of_a_disabled_level_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("kafkalog.broker")
    caplog.set_level(logging.WARNING, "kafkalog.broker")
    lines = LogRate(logger, burst_lines=1, clock=lambda: 0.0)
    for _ in range(5):
        lines.log(logging.DEBUG, "of no interest")
    lines.log(logging.WARNING, "of interest")
    lines.report_suppressed()
    assert caplog.messages == ["of interest"]
