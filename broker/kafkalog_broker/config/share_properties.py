"""Values of the share.* properties of a group that the broker's own properties bound, or that have a grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?", re.I
)


def check_share_properties(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigError, in Kafka's words (GroupConfig.validate)."""
    bounds = {
        "record.lock.duration.ms": (
            config.group_share_min_record_lock_duration_ms, config.group_share_max_record_lock_duration_ms
        ),
        "delivery.count.limit": (
            config.group_share_min_delivery_count_limit, config.group_share_max_delivery_count_limit
        ),
        "partition.max.record.locks": (
            config.group_share_min_partition_max_record_locks, config.group_share_max_partition_max_record_locks
        ),
    }  # fmt: skip
    for what, (least, most) in bounds.items():
        name = f"share.{what}"
        value = int(overrides.get(name, least))
        if value < least:
            raise ConfigError(f"{name} must be greater than or equal to group.share.min.{what}", name=name)
        if value > most and name in overrides:
            raise ConfigError(f"{name} must be less than or equal to group.share.max.{what}", name=name)
    reset = overrides.get(_RESET, LATEST)
    if reset.lower() not in (EARLIEST, LATEST) and reset_duration_ms(reset) is None:
        raise ConfigError(
            f"Invalid value {reset} for configuration {_RESET}: Invalid value `{reset}` for configuration {_RESET}. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
            name=_RESET,
        )


def reset_duration_ms(reset: str) -> int | None:
    """How far back share.auto.offset.reset goes; None where it is no duration."""
    if not reset.lower().startswith(BY_DURATION):
        return None
    text = reset[len(BY_DURATION) :]
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.upper().endswith("T"):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
