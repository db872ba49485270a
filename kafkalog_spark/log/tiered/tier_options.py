"""Options of tiered storage: the layout of objects, and the private keys of encrypted segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tiered.key_ring import KEY_OPTION, NO_KEYS, KeyRing
from kafkalog_spark.log.tiered.remote_names import Layout
from kafkalog_spark.options import OptionSpec, choice, plain_text

KEY_OPTION_MEANING = (
    "Private RSA key for segments that Aiven's plugin encrypted with the key pair ID: a PEM, or a path to one that "
    "every worker can read. It is never logged or shown. Ours."
)
ROOT_OPTION = "tiered.root"
"""Option with the root of the remote storage that log directories name (kafkalog.remote-storage.properties)."""


def _key_prefix(name: str, text: str) -> str:
    if "/" in text:
        raise OptionError(
            f"option '{name}' has a slash in it: '{text}'",
            hint="the part before the last slash of the plugin's key.prefix belongs to the path",
        )
    return text


_AUTO = "auto"
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
        _key_prefix,
        meaning="`layout=aiven`: the part of the plugin's `key.prefix` after its last slash. Ours.",
    ),
    OptionSpec(
        ROOT_OPTION,
        plain_text,
        meaning="Path or URL of the remote storage of a log directory that names one. Without it only a folder beside "
        "the log directory is read: a directory that somebody else made could name any place. Ours.",
    ),
)


@dataclass(frozen=True)
class TierOptions:
    """Parsed options of tiered storage. Pickles carry the keys; the repr does not.

    Attributes:
        layout: None to find it from the names below each path. A path without names of the layout may still be a log
            directory.
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
        """Parse the options of tiered storage among `options`, with names in any case. Raises OptionError."""
        texts = {name.lower(): text for name, text in options.items()}
        layout, prefix, root = (spec.value(texts.get(spec.name)) for spec in TIER_OPTIONS)
        keys = {name[len(KEY_OPTION) :]: text for name, text in options.items() if name.lower().startswith(KEY_OPTION)}
        if "" in keys:
            raise OptionError(f"option '{KEY_OPTION}' lacks the id of the key pair", hint=f"write {KEY_OPTION}ID")
        return cls(None if layout == _AUTO else Layout(layout), KeyRing(keys), prefix or "", root)


NO_TIER = TierOptions()


def is_tier_option(name: str) -> bool:
    """Return True if an option, by its name in lower case, is one of tiered storage."""
    return name in (spec.name for spec in TIER_OPTIONS) or name.startswith(KEY_OPTION)
