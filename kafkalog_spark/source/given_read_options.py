"""Options of a read as the user gave them, with the formats of values and keys among them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tiered.tier_options import is_tier_option
from kafkalog_spark.options import GivenOptions, OptionSpec, unknown_option
from kafkalog_spark.source.bounds import Bound
from kafkalog_spark.source.foreign_options import IGNORED, IGNORED_OF_CONNECTOR, REFUSED, SUGGESTED_OPTIONS
from kafkalog_spark.source.options import (
    OPTION_NAMES,
    READ_OPTIONS,
    STREAM_OPTIONS,
    FormatOptions,
    damage_mode,
)
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.storage_options import is_storage_option
from kafkalog_spark.typed.formats import FORMATS, check_options, format_name, option_names

_TYPO_RATIO = 0.85
"""Similarity (difflib) from which on an option counts as a misspelling of "kafka.isolation.level". That of
"kafka.isolationLevel" is 0.95, that of Kafka's other settings less than 0.7."""


class GivenFormats(NamedTuple):
    """Formats of values and keys that the options name.

    Attributes:
        by_side: Formats by side, "value" and "key".
        used_options: Lower-case names of the options that belong to the formats.
    """

    by_side: dict[str, FormatOptions]
    used_options: frozenset[str]


class GivenReadOptions(GivenOptions):
    """Options of a read as the user gave them, not checked against each other."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options, READ_OPTIONS)

    @cached_property
    def formats(self) -> GivenFormats:
        """Formats of values and keys.

        An option of a format has the prefix `value.` or `key.`. Without a prefix it applies to both formats, unless the
        reader has an option of that name. `mode` also applies to bad values, unless `value.mode` or `key.mode` is
        given.

        Raises:
            OptionError: For an unknown format, and for an option that the format does not have.
        """
        used: set[str] = set()
        formats: dict[str, FormatOptions] = {}
        for side in ("value", "key"):
            name = self.texts.get(f"{side}.format")
            prefixed = self.of_side(side)
            if name is None:
                if prefixed:
                    raise OptionError(
                        f"option '{self.names[f'{side}.{next(iter(prefixed))}']}' requires '{side}.format'",
                        hint=f"the formats are {', '.join(FORMATS)}",
                    )
                continue
            name = format_name(f"{side}.format", name)
            shared_names = option_names(name) - OPTION_NAMES - {"schema"}
            shared = {key: text for key, text in self.texts.items() if key in shared_names}
            own = {option: text for option, text in prefixed.items() if option not in ("format", "mode")}
            check_options(name, {option: self.names[f"{side}.{option}"] for option in own})
            mode_option = f"{side}.mode" if f"{side}.mode" in self else "mode"
            mode = damage_mode(mode_option, self.texts.get(mode_option, "PERMISSIVE"))
            used.update(shared, (f"{side}.{option}" for option in (*own, "format", "mode")))
            formats[side] = FormatOptions(name, shared | own, mode)
        return GivenFormats(formats, frozenset(used))

    def first_of(self, options: tuple[OptionSpec, ...], otherwise: Bound | None = None) -> Any:
        """Return the value of the first of `options` that is given.

        If none of them is given, return `otherwise`, or if that is None the default of the last option.
        """
        chosen = next((spec.name for spec in options if spec.name in self), None)
        return otherwise if chosen is None and otherwise is not None else self[chosen or options[-1].name]

    def ignored(self, streaming: bool) -> tuple[str, ...]:
        """Return the names of options without effect, in the order given. Raises OptionError for an unknown name."""
        used = OPTION_NAMES | REFUSED.keys()
        without_effect = {name.lower() for name in IGNORED}
        no_effect = {"endingtimestamp"} if streaming else {spec.name.lower() for spec in STREAM_OPTIONS}
        result = []
        for key, name in self.names.items():
            if (
                (key in used and key not in no_effect)
                or key in self.formats.used_options
                or ("commitGroup" in self and librdkafka.is_connection_setting(key))
                or is_storage_option(key)
                or is_tier_option(key)
                or self.is_table_property(key)
            ):
                continue
            # A misspelling of the only consumer setting that changes the result must not be ignored.
            level = "kafka.isolation.level"
            if key not in used and SequenceMatcher(None, key, level).ratio() >= _TYPO_RATIO:
                raise unknown_option(name, [level], {})
            if key not in used | without_effect and not key.startswith("kafka."):
                raise unknown_option(
                    name, [*(spec.name for spec in READ_OPTIONS), *IGNORED_OF_CONNECTOR], SUGGESTED_OPTIONS
                )
            result.append(name)
        return tuple(result)
