"""Files that every reader of Protobuf schemas has: Confluent's clients never register them as references.

Those of google/protobuf come with Google's library. known_types.textproto has those of google/type (Copyright Google
LLC) and confluent (Copyright Confluent Inc.), both under the Apache License, Version 2.0, without their comments.
tests/interop/record_known_types.py makes it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_OF_THE_LIBRARY = frozenset(
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
    """The FileDescriptorProto of a known file, None for another name."""
    if name in _OF_THE_LIBRARY:
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto()
        import_module(name.replace(".proto", "_pb2").replace("/", ".")).DESCRIPTOR.CopyToProto(file)
        return file
    return known_files().get(name)


@cache
def known_files() -> dict[str, Any]:
    """The FileDescriptorProto of each known file that Google's library does not have."""
    from google.protobuf import descriptor_pb2, text_format

    files = text_format.Parse(DATA.read_text(), descriptor_pb2.FileDescriptorSet())
    return {file.name: file for file in files.file}
