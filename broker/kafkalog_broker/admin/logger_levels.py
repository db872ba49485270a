"""Log levels of Python loggers, shown and set as Kafka's BROKER_LOGGER resource (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkalog_broker.admin.config_operations import ConfigOperation, PropertyChange
from kafkalog_broker.errors import BrokerError, ErrorCode

ROOT = "root"
_PACKAGES = ("kafkalog_broker", "kafkalog_spark")
"""Packages whose loggers are shown: each module of this project logs under its own name."""

_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}
"""Log4j's level names and Python's levels, in descending order."""


def loggers() -> dict[str, str]:
    """Return the existing loggers: the root logger and those of this project, by the name that clients use.

    The values are Python's logger names. As in Log4j, the level of a package applies to all its modules that have no
    level of their own.
    """
    project_loggers = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _PACKAGES]
    return {ROOT: "", **{name: name for name in sorted(project_loggers)}}


def effective_level_name(python_logger: str) -> str:
    """Return the Log4j name of a logger's effective level, rounded down to a level of Log4j."""
    level = logging.getLogger(python_logger).getEffectiveLevel()
    return next((name for name, lowest in _LEVELS.items() if level >= lowest), "TRACE")


def requested_levels(changes: Iterable[PropertyChange]) -> dict[str, int]:
    """Return the new level of each changed logger; NOTSET to inherit it.

    Raises:
        BrokerError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for an operation other than SET and
            DELETE, and for removing the root logger's level.
    """
    levels = {}
    for change in changes:
        if change.operation is ConfigOperation.DELETE:
            if change.name == ROOT:
                raise BrokerError(ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed")
            _parse_level(change.name, "INFO")
            levels[change.name] = logging.NOTSET
        elif change.operation is ConfigOperation.SET:
            levels[change.name] = _parse_level(change.name, change.value)
        else:
            message = f"Can't {change.operation.name} the level of a logger, only SET and DELETE it"
            raise BrokerError(ErrorCode.invalid_request, message)
    return levels


def set_levels(levels: Mapping[str, int]) -> None:
    """Set the levels that `requested_levels` returned."""
    for name, level in levels.items():
        logging.getLogger(loggers()[name]).setLevel(level)


def _parse_level(logger: str, level: str | None) -> int:
    if logger not in loggers():
        raise BrokerError(ErrorCode.invalid_config, f"Logger {logger} does not exist!")
    if level not in _LEVELS:
        raise BrokerError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    return _LEVELS[level]
