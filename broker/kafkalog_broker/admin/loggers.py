"""The broker's loggers as Kafka's BROKER_LOGGER resource shows and sets them (KIP-412)."""

from __future__ import annotations

import logging

from kafkalog_broker.errors import BrokerError, ErrorCode

ROOT = "root"
_PACKAGES = ("kafkalog_broker", "kafkalog_spark")
"""Every module logs under its own dotted name, so these are above all loggers of this project: the broker, and the log
format that it stands on."""
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def loggers() -> dict[str, str]:
    """Name for clients -> name of Python's logger: the root and those of this project that exist by now, with the
    packages above them, as in Log4j: a level set for kafkalog_broker.groups holds for all modules in it."""
    own = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _PACKAGES]
    return {ROOT: "", **{name: name for name in sorted(own)}}


def kafka_level(level: int) -> str:
    return next((name for name, value in _LEVELS.items() if level >= value), "TRACE")


def check_level(name: str, level: str | None) -> int:
    """Raises BrokerError (INVALID_CONFIG) for an unknown logger or level."""
    if name not in loggers():
        raise BrokerError(ErrorCode.invalid_config, f"Logger {name} does not exist!")
    if level not in _LEVELS:
        raise BrokerError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    return _LEVELS[level]


def set_level(name: str, level: int) -> None:
    """`level` NOTSET: as the logger above it."""
    logging.getLogger(loggers()[name]).setLevel(level)
