"""--option of the commands: how object stores and tiered storage are reached."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.store.storage_names import is_storage_option
from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option


def add_storage_arguments(parser: argparse.ArgumentParser) -> None:
    """The option --option."""
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="about an object store, such as fs.s3a.endpoint=http://minio:9000 (docs/object_storage.md), or about "
        "tiered storage: layout, tiered.key.prefix, tiered.encryption.key.ID=PATH; secrets are better said by the "
        "environment, the profile or a file",
    )


def named_options(given: Sequence[str]) -> dict[str, str]:
    """What --option says, by name. Raises OptionError."""
    options: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not (is_storage_option(name) or is_tier_option(name.lower())):
            raise OptionError(
                "--option takes NAME=VALUE, where NAME is layout or begins with fs.s3a., storage., tiered."
            )
        options[name] = value
    return options


def storage_and_tier(given: Sequence[str]) -> tuple[StorageOptions, TierOptions]:
    """What --option says. Raises OptionError."""
    options = named_options(given)
    of_storage = {name: value for name, value in options.items() if is_storage_option(name)}
    return StorageOptions.of(of_storage), TierOptions.of(options)
