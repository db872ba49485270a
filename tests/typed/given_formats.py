"""Formats from options alone, without look-ups, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from kafkalog_spark.typed.decoder import ValueDecoder
from kafkalog_spark.typed.formats import ResolvedFormat


def decoder_of(name: str, options: Mapping[str, Any], wanted: pa.Schema) -> ValueDecoder:
    return _given(name, options).decoder(wanted)


def schema_of(name: str, options: Mapping[str, Any]) -> pa.Schema:
    return _given(name, options).schema()


def of_format(
    name: str,
) -> tuple[Callable[[Mapping[str, Any]], pa.Schema], Callable[[Mapping[str, Any], pa.Schema], ValueDecoder]]:
    """(schema of options, decoder of options and columns) of a format."""
    return lambda options: schema_of(name, options), lambda options, wanted: decoder_of(name, options, wanted)


def _given(name: str, options: Mapping[str, Any]) -> ResolvedFormat:
    """`descriptors`: the bytes of a descriptor set, without a file."""
    texts = {key: text for key, text in options.items() if key != "descriptors"}
    return ResolvedFormat(name, texts, descriptors=options.get("descriptors"))
