"""What a user said about tiered storage: how its keys are made, and what opens encrypted segments. Parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tiered.key_wrap import OPTION as KEY_OPTION
from kafkalog_spark.log.tiered.key_wrap import KeyRing
from kafkalog_spark.log.tiered.remote_names import Layout

LAYOUT_OPTION = "layout"
PREFIX_OPTION = "tiered.key.prefix"
AUTO = "auto"
_NO_KEYS = KeyRing({})

LAYOUTS = (AUTO, *(layout.value for layout in Layout))


@dataclass(frozen=True)
class TierOptions:
    """layout: None to find it from the names below each path. Otherwise names of other tiered layouts mean nothing; a
    path that has none of this layout may still be a log directory, so that local and remote ones can be mixed.

    key_prefix: what of the plugin's `key.prefix` follows its last slash. Picklable, and a pickle carries the keys; the
    repr does not.
    """

    layout: Layout | None = None
    keys: KeyRing = _NO_KEYS
    key_prefix: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TierOptions:
        """Those of `options` that are about tiered storage, names in any case; others are left alone. Raises
        OptionError."""
        layout, prefix, keys = AUTO, "", {}
        for name, text in options.items():
            lower = name.lower()
            if lower == LAYOUT_OPTION:
                layout = text.lower()
            elif lower == PREFIX_OPTION:
                prefix = text
            elif lower.startswith(KEY_OPTION):
                keys[name[len(KEY_OPTION) :]] = text
        if layout not in LAYOUTS:
            raise OptionError(f"option '{LAYOUT_OPTION}' must be one of {', '.join(LAYOUTS)}, got '{layout}'")
        if "/" in prefix:
            raise OptionError(
                f"option '{PREFIX_OPTION}' has a slash in it: '{prefix}'",
                hint="what comes before the last slash of the plugin's key.prefix belongs to the path",
            )
        if "" in keys:
            raise OptionError(f"option '{KEY_OPTION}' lacks the id of the key pair", hint=f"write {KEY_OPTION}ID")
        return cls(None if layout == AUTO else Layout(layout), KeyRing(keys), prefix)


NO_TIER = TierOptions()


def is_tier_option(name: str) -> bool:
    """Whether an option, its name in small letters, is about tiered storage."""
    return name in (LAYOUT_OPTION, PREFIX_OPTION) or name.startswith(KEY_OPTION)
