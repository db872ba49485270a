"""Storage and tier options of commands, given by --option."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option


def named_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of --option by name. Raises OptionError for a text without `=`."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, options[name] = text.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, got '{text}'")
    return options


def storage_of(arguments: argparse.Namespace) -> tuple[StorageOptions, TierOptions]:
    """Return the storage and tier options of a command line. Raises OptionError for any other option."""
    return storage_and_tier(named_options(arguments.option))


def storage_and_tier(options: Mapping[str, str]) -> tuple[StorageOptions, TierOptions]:
    """Return the storage and tier options among `options`. Raises OptionError for any other option."""
    for name in options:
        if not (is_storage_option(name) or is_tier_option(name.lower())):
            raise OptionError(
                "--option takes NAME=VALUE, where NAME is layout or begins with fs.s3a., storage., tiered., "
                f"got '{name}'"
            )
    storage = {name: value for name, value in options.items() if is_storage_option(name)}
    return StorageOptions.of(storage), TierOptions.of(options)
