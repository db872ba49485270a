"""The .proto files that schemas may import without a reference, as in Confluent's clients.

The files of google/protobuf are part of Google's library. known_types.textproto contains those of google/type
(Copyright Google LLC) and confluent (Copyright Confluent Inc.), both under the Apache License, Version 2.0, without
comments. tests/interop/record_known_types.py generates it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_LIBRARY_FILES = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
)
DATA = Path(__file__).with_name("known_types.textproto")


def known_file(name: str) -> Any:
    """Return the FileDescriptorProto of a known file; None for any other name."""
    if name in _LIBRARY_FILES:
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto()
        import_module(name.replace(".proto", "_pb2").replace("/", ".")).DESCRIPTOR.CopyToProto(file)
        return file
    return known_files().get(name)


@cache
def known_files() -> dict[str, Any]:
    """Return the FileDescriptorProto of each known file that is not part of Google's library, by name."""
    from google.protobuf import descriptor_pb2, text_format

    files = text_format.Parse(DATA.read_text(), descriptor_pb2.FileDescriptorSet())
    return {file.name: file for file in files.file}
