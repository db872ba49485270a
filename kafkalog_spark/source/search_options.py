"""The options of a search: which records a read is about, by what they hold."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.read.wanted_records import WantedRecords
from kafkalog_spark.option_text import GivenOptions
from kafkalog_spark.source.option_names import SEARCH_OPTIONS


def wanted_records(given: GivenOptions) -> WantedRecords:
    """What the options where.* ask for. Raises OptionError for two of a record's one key."""
    key, key_hex, prefix, part, header = (given.value(option) for option in SEARCH_OPTIONS)
    if key is not None and key_hex is not None:
        raise OptionError("options 'where.key' and 'where.key.hex' are both given", hint="a record has one key")
    name, value = (None, None) if header is None else header
    return WantedRecords(key if key_hex is None else key_hex, prefix, part, name, value)
