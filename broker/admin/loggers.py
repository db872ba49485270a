"""The broker's loggers as Kafka's BROKER_LOGGER resource shows and sets them (KIP-412)."""

from __future__ import annotations

import logging

from broker.errors import BrokerError, ErrorCode

ROOT = "root"
_PREFIX = "kafkalog"
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def loggers() -> dict[str, str]:
    """Name for clients -> name of Python's logger: the root and those of this project that exist by now."""
    own = [name for name in logging.root.manager.loggerDict if name == _PREFIX or name.startswith(_PREFIX + ".")]
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
