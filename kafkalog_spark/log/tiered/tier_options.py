"""Options of tiered storage: the layout of objects, and the private keys of encrypted segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tiered.key_ring import KEY_OPTION_PREFIX, NO_KEYS, KeyRing
from kafkalog_spark.log.tiered.object_keys import Layout
from kafkalog_spark.options import OptionSpec, choice, plain_text

ROOT_OPTION = "tiered.root"
"""Option that replaces the root of the remote storage in kafkalog.remote-storage.properties of a log directory."""
_AUTO = "auto"


def _parse_key_prefix(name: str, text: str) -> str:
    if "/" in text:
        raise OptionError(
            f"option '{name}' contains a slash: '{text}'",
            hint="the part before the last slash of the plugin's key.prefix belongs to the path",
        )
    return text


TIER_OPTIONS = (
    OptionSpec(
        "layout",
        choice(_AUTO, *(layout.value for layout in Layout)),
        _AUTO,
        "How files below the paths are named: `broker`, as in a log directory; `aiven`, by Aiven's plugin for tiered "
        "storage; `local-tiered`, by Kafka's LocalTieredStorage. `auto` recognises it for each path. Ours.",
    ),
    OptionSpec(
        "tiered.key.prefix",
        _parse_key_prefix,
        meaning="`layout=aiven`: the part of the plugin's `key.prefix` after its last slash. Ours.",
    ),
    OptionSpec(
        ROOT_OPTION,
        plain_text,
        meaning="Path or URL to use instead of the remote storage that a log directory names in "
        "kafkalog.remote-storage.properties. Without it, only a folder beside the log directory is read, because a log "
        "directory from an untrusted source can name any location. Ours.",
    ),
)


@dataclass(frozen=True)
class TierOptions:
    """Parsed options of tiered storage.

    A pickle contains the private keys; the repr does not.

    Attributes:
        layout: Layout of the objects; None to recognise it from the names below each path. A path without object names
            of this layout is read as a log directory.
        keys: Private keys for encrypted segments.
        key_prefix: The part of the plugin's `key.prefix` after its last slash.
        root: Path or URL of the remote storage of log directories that name one; None to follow only a folder beside
            the log directory.
    """

    layout: Layout | None = None
    keys: KeyRing = NO_KEYS
    key_prefix: str = ""
    root: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TierOptions:
        """Parse the options of tiered storage in `options`; names are case-insensitive. Raises OptionError."""
        texts = {name.lower(): text for name, text in options.items()}
        layout, prefix, root = (spec.value(texts.get(spec.name)) for spec in TIER_OPTIONS)
        keys = {
            name[len(KEY_OPTION_PREFIX) :]: text
            for name, text in options.items()
            if name.lower().startswith(KEY_OPTION_PREFIX)
        }
        if "" in keys:
            raise OptionError(
                f"option '{KEY_OPTION_PREFIX}' lacks the ID of the key pair", hint=f"write {KEY_OPTION_PREFIX}ID"
            )
        return cls(None if layout == _AUTO else Layout(layout), KeyRing(keys), prefix or "", root)


DEFAULT_TIER_OPTIONS = TierOptions()


def is_tier_option(name: str) -> bool:
    """Return True if `name`, in lower case, is the name of an option of tiered storage."""
    return name in (spec.name for spec in TIER_OPTIONS) or name.startswith(KEY_OPTION_PREFIX)
