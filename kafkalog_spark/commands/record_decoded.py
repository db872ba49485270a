"""Values and keys of a format as JSON: kafkalog-cat -f json -s value=avro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.commands.record_json import Shown, json_text, json_values, without_controls
from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.decoder import (
    FORMATS,
    SchemaSources,
    ValueDecoder,
    ValueEncoder,
    decoder_of,
    encoder_of,
    format_of,
    settled_options,
)

PARTS = ("value", "key")


def shown_parts(
    serialized: Sequence[str], options: Mapping[str, str], topics: tuple[str, ...], dirs: LogDirs
) -> dict[str, Shown]:
    """What makes JSON of a record's parts. serialized: texts PART=FORMAT; options: of formats, by their names with
    `value.` or `key.`. Raises OptionError, and what formats raise for their options."""
    found: dict[str, Shown] = {}
    formats = tuple(name for name in FORMATS if name != "string")
    for text in serialized:
        part, _, name = text.partition("=")
        if part not in PARTS or name not in formats:
            raise OptionError(
                f"-s takes value=FORMAT or key=FORMAT, got '{text}'", hint=f"the formats are {', '.join(formats)}"
            )
        given = _of_part(part, name, options)
        if name == "json" and not given:
            found[part] = _as_it_is(part)
            continue
        settled = settled_options(name, given, SchemaSources(part, topics, lambda topic: _records(dirs, topic)))
        decoder = decoder_of(name, settled, format_of(name).schema(settled))
        found[part] = _Decoded(part, decoder)
    for name in options:
        if name.partition(".")[0] not in found:
            raise OptionError(f"--option {name} is of a format, and -s names none", hint="-s value=avro names one")
    return found


def _of_part(part: str, format: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those of a part, in small letters and without its name. Raises OptionError for one that the format has not."""
    known = [option.lower() for option in format_of(format).OPTIONS]
    found: dict[str, str] = {}
    for name, text in options.items():
        side, _, option = name.partition(".")
        if side != part:
            continue
        option = option.lower()
        begins = tuple(one.removesuffix("*") for one in known if one.endswith("*"))
        if option not in known and not (begins and option.startswith(begins)):
            raise OptionError(
                f"the format {format} has no option '{option}' (--option {name})", hint="docs/typed.md lists them"
            )
        found[option] = text
    return found


def _records(dirs: LogDirs, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    for batch in dirs.scan(topic, columns=("key", "value")):
        yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


def _as_it_is(part: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda rows: json_values(rows.column(part))


class _Decoded:
    """Decodes a part and writes it as to_json does, with fields that are null; what cannot be decoded is a string."""

    def __init__(self, part: str, decoder: ValueDecoder) -> None:
        self._part, self._decoder = part, decoder
        self._encoder: ValueEncoder = encoder_of("json", {"ignorenullfields": "false"}, decoder.schema)

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(self._part)
        values = [column]
        if getattr(self._decoder, "headers_too", False):
            values.append(rows.column("headers"))
        found = self._decoder.decode(*values)
        texts = without_controls(self._encoder.encode(found.columns).to_pylist())
        left = pc.is_null(texts)
        if found.bad is not None:
            left = pc.or_(left, pa.array(found.bad))
        return pc.if_else(pc.and_(left, pc.is_valid(column)), json_text(column), pc.fill_null(texts, b"null"))
