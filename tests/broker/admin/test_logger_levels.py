"""Log levels as the configuration of the resource type BROKER_LOGGER (KIP-412)."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path

import kafkalog_broker
from kafkalog_broker.admin.logger_levels import loggers
from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import described_value, only_result, send
from tests.broker.api.helpers.admin_scenario import BROKER_LOGGER, DELETE, SET, change, incremental


def test_all_loggers_of_the_broker_are_listed(broker):
    package = Path(kafkalog_broker.__file__).parent
    logging_modules = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for file in package.rglob("*.py")
        if "getLogger(__name__)" in file.read_text()
    }
    for name in logging_modules:
        importlib.import_module(name)  # as the running broker has
    names = set(loggers())
    assert logging_modules <= names
    assert {"root", "kafkalog_broker", "kafkalog_broker.groups"} <= names


def test_log_level_is_altered_and_described(broker):
    name = "kafkalog_broker.groups"
    logger = logging.getLogger(name)
    before = logger.level

    def altered(operation, level):
        return only_result(send(broker, incremental(change(BROKER_LOGGER, "1", (name, operation, level)))))

    try:
        assert altered(SET, "ERROR").error_code is ErrorCode.none
        assert logger.level == logging.ERROR
        assert described_value(broker, BROKER_LOGGER, "1", name) == "ERROR"
        assert altered(SET, "LOUD").error_code is ErrorCode.invalid_config
        altered(DELETE, None)
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
