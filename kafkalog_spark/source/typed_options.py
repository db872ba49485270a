"""Options of a read about what values and keys hold: value.format, key.format, and those of the formats.

An option of a format is given with the prefix `value.` or `key.`, or without it, for both. `mode` is about values too
where one of them has a format; `value.mode` and `key.mode` are about nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kafkalog_spark.errors import OptionError
from kafkalog_spark.option_text import GivenOptions, choice
from kafkalog_spark.typed.decoder import FORMATS, format_name, format_of

ValueMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
Side = Literal["value", "key"]
SIDES: tuple[Side, ...] = ("value", "key")
_mode = choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
_ONLY_WITH_PREFIX = "schema"


@dataclass(frozen=True)
class FormatOptions:
    """What is said of the values, or of the keys. `options`: of the format, names in small letters without prefix."""

    side: Side
    format: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # passwords of registries are among them
    mode: ValueMode


@dataclass(frozen=True)
class TypedOptions:
    """Formats of values and keys; None where they stay bytes."""

    value: FormatOptions | None = None
    key: FormatOptions | None = None

    def __bool__(self) -> bool:
        return self.value is not None or self.key is not None

    def side(self, name: str) -> FormatOptions | None:
        return self.value if name == "value" else self.key if name == "key" else None

    @property
    def sides(self) -> tuple[FormatOptions, ...]:
        return tuple(side for side in (self.value, self.key) if side is not None)


def typed_options(given: GivenOptions, reserved: Collection[str]) -> tuple[TypedOptions, frozenset[str]]:
    """(The options, the names in small letters that they use). reserved: names that mean something else without a
    prefix.

    Raises OptionError for a format that there is not, for an option of a format where none is named, and for a prefixed
    one that the format has not.
    """
    used: set[str] = set()
    found: dict[str, FormatOptions] = {}
    for side in SIDES:
        name = given.texts.get(f"{side}.format")
        prefixed = {key: text for key, text in given.texts.items() if key.startswith(f"{side}.")}
        if name is None:
            if prefixed:
                key = next(iter(prefixed))
                raise OptionError(
                    f"option '{given.names[key]}' is of a format, and option '{side}.format' is not given",
                    hint=f"the formats are {', '.join(FORMATS)}",
                )
            continue
        chosen = format_name(f"{side}.format", name)
        options = _options_of(given, side, chosen, prefixed, reserved, used)
        text = given.texts.get(f"{side}.mode")
        mode = given.texts.get("mode", "PERMISSIVE") if text is None else text
        used |= {f"{side}.format", f"{side}.mode"}
        found[side] = FormatOptions(side, chosen, options, _mode("mode" if text is None else f"{side}.mode", mode))
    return TypedOptions(found.get("value"), found.get("key")), frozenset(used)


def _options_of(
    given: GivenOptions,
    side: str,
    name: str,
    prefixed: Mapping[str, str],
    reserved: Collection[str],
    used: set[str],
) -> tuple[tuple[str, str], ...]:
    known = [option.lower() for option in format_of(name).OPTIONS]
    exact = {option for option in known if not option.endswith("*")}
    begins = tuple(option.removesuffix("*") for option in known if option.endswith("*"))
    options: dict[str, str] = {}
    for key, text in given.texts.items():
        plain = key not in reserved and key != _ONLY_WITH_PREFIX
        if plain and (key in exact or (begins and key.startswith(begins))):
            options[key] = text
            used.add(key)
    for key, text in prefixed.items():
        option = key.removeprefix(f"{side}.")
        if option in ("format", "mode"):
            continue
        if option not in exact and not (begins and option.startswith(begins)):
            raise OptionError(
                f"the format {name} has no option '{option}' ('{given.names[key]}')",
                hint="docs/typed.md lists the options of each format",
            )
        options[option] = text
        used.add(key)
    return tuple(sorted(options.items()))
