"""Log directories whose values are read as columns: `kafkalog_spark.LogDirs`.

dirs = LogDirs.open("/data/kafka-logs")
for batch in dirs.scan("orders", value_format="json", value_schema="id bigint, user string"):
    batch["value"]                  # struct<id: int64, user: string>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog_spark.log import log_dir
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.record_schema import ScanRequest


class LogDirs(log_dir.LogDirs):
    """As log.log_dir.LogDirs, with formats of values and keys."""

    def scan(  # type: ignore[override]
        self,
        topic: str | None = None,
        request: ScanRequest | None = None,
        *,
        value_format: str | None = None,
        value_schema: str | pa.Schema | None = None,
        value_options: Mapping[str, str] | None = None,
        key_format: str | None = None,
        key_schema: str | pa.Schema | None = None,
        key_options: Mapping[str, str] | None = None,
        **options: object,
    ) -> Iterator[pa.RecordBatch]:
        """As log.log_dir.LogDirs.scan; with a format the column `value`, or `key`, is a struct of what was decoded.

        value_schema: DDL or an Arrow schema, of the columns that are wanted; where it is None, the format or its
        options say them. value_options: of the format (docs/typed.md). A bad value has nulls, as in mode PERMISSIVE.
        Raises OptionError for what the format refuses.
        """
        from kafkalog_spark.log.decode.record_schema import COLUMNS

        decoders: dict[str, ValueDecoder] = {}
        for column, name, schema, given in (
            ("value", value_format, value_schema, value_options),
            ("key", key_format, key_schema, key_options),
        ):
            if name is not None:
                sources = SchemaSources(column, () if topic is None else (topic,), self.keys_and_values)
                texts = {option.lower(): text for option, text in (given or {}).items()}
                format = ResolvedFormat.of(name, texts, sources)
                wanted = schema_of_ddl(schema) if isinstance(schema, str) else schema
                decoders[column] = format.decoder(format.schema() if wanted is None else wanted)
        columns: Any = options.get("columns", COLUMNS) if request is None else request.columns
        headers_too = any(getattr(decoder, "headers_too", False) for decoder in decoders.values())
        add_headers = headers_too and "headers" not in columns
        if add_headers:
            with_headers = (*columns, "headers")
            if request is None:
                options["columns"] = with_headers
            else:
                request = replace(request, columns=with_headers)
        for batch in super().scan(topic, request, **options):  # type: ignore[arg-type]
            for column, decoder in decoders.items():
                at = batch.schema.get_field_index(column)
                if at >= 0:
                    found = decode_column(decoder, batch, column).columns
                    batch = batch.set_column(at, pa.field(column, found.type), found)
            yield batch.drop_columns(["headers"]) if add_headers else batch
