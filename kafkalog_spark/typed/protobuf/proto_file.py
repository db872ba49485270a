"""Compiles Protobuf schemas as a schema registry stores them: the text of a .proto file, or a descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.descriptors import pool_of
from kafkalog_spark.typed.protobuf.known_types import known_file, known_files
from kafkalog_spark.typed.protobuf.map_entries import (
    map_entry_names,
    mark_map_entries,
    restore_map_entries,
    unused_marker,
)
from kafkalog_spark.typed.protobuf.proto_text import imports_of
from kafkalog_spark.typed.protobuf.protoc import run_protoc

ROOT_NAME = "kafkalog.proto"  # name of a schema's own file; imported files have the names of their references
_IMPORTABLE = re.compile(r"(?:[\w+-][\w+.-]*/)*[\w+-][\w+.-]*\.proto", re.ASCII)
"""Relative paths that protoc accepts on its command line. `=` is excluded, because it separates name and path in -I."""
_MAX_NAME = 255


class ProtoFile(NamedTuple):
    """The compiled file of a schema."""

    descriptor: Any  # FileDescriptor
    generated_map_entries: frozenset[str]
    """Full names of the map entry messages that protoc generates for `map<...>` fields."""


def compile_schema(text: str, imported: Mapping[str, str], origin: str) -> ProtoFile:
    """Compile a schema.

    An import that is neither in `imported` nor a known file is replaced by an empty file, as in Confluent's
    `ProtobufSchema`: a schema does not necessarily use what it imports.

    Args:
        text: Text of the .proto file, or its descriptor in base64.
        imported: Texts or descriptors of the files that the schema refers to, by name.
        origin: Where the schema comes from, for errors.

    Raises:
        OptionError: If the schema is invalid, or the compiler (grpcio-tools) is not installed.
        KafkalogError: If the compiler cannot be run.
    """
    from google.protobuf import descriptor_pb2

    for name in imported:
        if not _is_importable(name):
            raise OptionError(f"{origin} refers to {name[:100]!r}, which is not a relative path of a .proto file")
    contents = {**imported, ROOT_NAME: text}
    binaries = {
        name: file for name, content in contents.items() if (file := _binary_descriptor(content, name)) is not None
    }
    texts = {name: content for name, content in contents.items() if name not in binaries}
    empty_files = _empty_files(texts, binaries)
    files = descriptor_pb2.FileDescriptorSet()
    generated_map_entries: frozenset[str] = frozenset()
    if texts:
        files, generated_map_entries = _compile_texts(texts, binaries, empty_files, origin)
    compiled = {file.name for file in files.file}
    files.file.extend(file for name, file in {**binaries, **empty_files}.items() if name not in compiled)
    try:
        pool, _ = pool_of(files.SerializeToString(), origin)
        return ProtoFile(pool.FindFileByName(ROOT_NAME), generated_map_entries)
    except OptionError as error:
        raise _with_missing_imports(empty_files, error) from None


def _is_importable(name: str) -> bool:
    return len(name) <= _MAX_NAME and _IMPORTABLE.fullmatch(name) is not None


def _binary_descriptor(text: str, name: str) -> Any:
    """Return the FileDescriptorProto that newer registries store in base64; None if `text` is a .proto file."""
    from google.protobuf import descriptor_pb2, message

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    file.name = name
    return file


def _empty_files(texts: Mapping[str, str], binaries: Mapping[str, Any]) -> dict[str, Any]:
    """Return an empty FileDescriptorProto for each import that does not exist, by name."""
    from google.protobuf import descriptor_pb2

    imports = [name for content in texts.values() for name in imports_of(content)]
    imports += [name for file in binaries.values() for name in file.dependency]
    return {
        name: descriptor_pb2.FileDescriptorProto(name=name)
        for name in imports
        if name not in texts and name not in binaries and _is_importable(name) and known_file(name) is None
    }


def _compile_texts(
    texts: Mapping[str, str], binaries: Mapping[str, Any], empty_files: Mapping[str, Any], origin: str
) -> tuple[Any, frozenset[str]]:
    """Compile the files of a schema that are texts.

    Args:
        texts: Their texts by name.
        binaries: FileDescriptorProto of each file that is a descriptor, by name.
        empty_files: FileDescriptorProto of each missing import, by name.
        origin: Where the schema comes from, for errors.

    Returns:
        (FileDescriptorSet of the texts and their imports; `ProtoFile.generated_map_entries`).

    Raises:
        OptionError: If protoc refuses the schema or is not installed.
        KafkalogError: If protoc cannot be run.
    """
    from google.protobuf import descriptor_pb2

    marker = unused_marker(texts.values())
    marked_texts = {name: mark_map_entries(content, marker) for name, content in texts.items()}
    inputs = [ROOT_NAME] if ROOT_NAME in texts else list(texts)
    known = [file for name, file in known_files().items() if name not in texts and name not in binaries]
    importable = descriptor_pb2.FileDescriptorSet(file=[*known, *binaries.values(), *empty_files.values()])
    try:
        compiled = run_protoc(inputs, marked_texts, importable.SerializeToString(), origin)
    except OptionError as error:
        raise _with_missing_imports(empty_files, error) from None
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled)
    # The explicit map entries are still hidden behind `marker`, so protoc generated every map entry that is found now.
    roots = [file for file in files.file if file.name == ROOT_NAME and ROOT_NAME in texts]
    generated_map_entries = frozenset(name for file in roots for name in map_entry_names(file))
    for file in files.file:
        if file.name in texts:
            restore_map_entries(file, marker, origin)
    return files, generated_map_entries


def _with_missing_imports(empty_files: Collection[str], error: OptionError) -> OptionError:
    """Return the error with a hint that lists the missing imports, because one of them may define an unknown type."""
    if not empty_files or error.hint is not None:
        return error
    names = ", ".join(sorted(empty_files))
    return OptionError(error.what, hint=f"the schema imports {names}, but the registry lists no such reference")
