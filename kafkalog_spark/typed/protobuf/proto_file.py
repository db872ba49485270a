"""Protobuf schemas as registries keep them: the text of a .proto file, or a descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kafkalog_spark.errors import KafkalogError, OptionError, install_hint
from kafkalog_spark.typed.protobuf.descriptors import pool_of
from kafkalog_spark.typed.protobuf.known_types import known_file, known_files
from kafkalog_spark.typed.protobuf.proto_text import imports_of, with_marked_map_entries

ROOT = "kafkalog.proto"  # the name of a schema's own file; those that it imports have names of their own
_IMPORTABLE = re.compile(r"(?:[\w+-][\w+.-]*/)*[\w+-][\w+.-]*\.proto", re.ASCII)
"""File names as protoc's users write them. No `=`, which ends a name where protoc is told of it."""
_LONGEST_NAME = 255
_TIMEOUT_S = 60  # protoc takes a tenth of a second
_OPTIONAL = 1  # FieldDescriptorProto.LABEL_OPTIONAL, which fields of proto3 have too


class ProtoFile(NamedTuple):
    """A schema's own file. implied_entries: full names of the messages that protoc makes of `map<...>` fields, which
    are in the descriptor but not in the text."""

    descriptor: Any
    implied_entries: frozenset[str]


def proto_file(text: str, imported: Mapping[str, str], place: str) -> ProtoFile:
    """Return the file of a schema. imported: texts or descriptors of the files that it refers to, by name.

    An import that is neither among them nor a known file is replaced by an empty file, as in Confluent's
    `ProtobufSchema`: the schema may not use it.

    Raises OptionError for a text that is no .proto file, and if grpcio-tools, which has the compiler, is not installed.
    """
    from google.protobuf import descriptor_pb2

    for name in imported:
        if not _is_importable(name):
            raise OptionError(f"{place} refers to {name[:100]!r}, which is no relative path of a .proto file")
    contents = {**imported, ROOT: text}
    binaries = {name: file for name, content in contents.items() if (file := _as_binary(content, name)) is not None}
    texts = {name: content for name, content in contents.items() if name not in binaries}
    imports = [name for content in texts.values() for name in imports_of(content)]
    imports += [name for file in binaries.values() for name in file.dependency]
    absent = {
        name: descriptor_pb2.FileDescriptorProto(name=name)
        for name in imports
        if name not in contents and _is_importable(name) and known_file(name) is None
    }
    result = descriptor_pb2.FileDescriptorSet()
    implied: frozenset[str] = frozenset()
    if texts:
        marker = "kafkalog_map_entry"
        while any(marker in content for content in texts.values()):
            marker += "_"
        marked = {name: with_marked_map_entries(content, marker) for name, content in texts.items()}
        inputs = [ROOT] if ROOT in texts else list(texts)
        known = [file for name, file in known_files().items() if name not in contents]
        files = descriptor_pb2.FileDescriptorSet(file=[*known, *binaries.values(), *absent.values()])
        try:
            result.ParseFromString(_compiled(inputs, marked, files.SerializeToString(), place))
        except OptionError as error:
            raise _naming(absent, error) from None
        implied = frozenset(
            name for file in result.file if file.name == ROOT and ROOT in texts for name in _map_entries(file)
        )
        for file in result.file:
            if file.name in texts:
                _restore_map_entries(file, marker, place)
    have = {file.name for file in result.file}
    result.file.extend(file for name, file in {**binaries, **absent}.items() if name not in have)
    try:
        pool, _ = pool_of(result.SerializeToString(), place)
        return ProtoFile(pool.FindFileByName(ROOT), implied)
    except OptionError as error:
        raise _naming(absent, error) from None


def message_at(file: ProtoFile, indexes: tuple[int, ...]) -> Any:
    """The message that indexes name. Raises OptionError.

    Confluent's Java clients count the messages of the schema's text, where `map<...>` is none. Its other clients count
    those of the descriptor, which has a message for each map. If both ways give a message, that of Java counts.
    """
    for uncounted in (file.implied_entries, frozenset[str]()):
        messages, found = [*file.descriptor.message_types_by_name.values()], None
        for index in indexes:
            counted = [message for message in messages if message.full_name not in uncounted]
            found = counted[index] if 0 <= index < len(counted) else None
            if found is None or found.GetOptions().map_entry:
                found = None
                break
            messages = found.nested_types
        if found is not None:
            return found
    raise OptionError(f"the file has no message of indexes {list(indexes)}")


def _is_importable(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _IMPORTABLE.fullmatch(name) is not None


def _naming(absent: Collection[str], error: OptionError) -> OptionError:
    """The error with a hint that names the imports that are empty files: the missing type may be in one of them."""
    if not absent or error.hint is not None:
        return error
    return OptionError(error.what, hint=f"it imports {', '.join(sorted(absent))}, which it has no reference to")


def _as_binary(text: str, name: str) -> Any:
    """The descriptor in base64, as newer registries keep it; None for a text."""
    from google.protobuf import descriptor_pb2, message

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    file.name = name
    return file


def _compiled(inputs: list[str], texts: Mapping[str, str], known: bytes, place: str) -> bytes:
    """The descriptor set of the inputs and their imports, by protoc in a process of its own. Names of data become names
    of files in protoc's eyes only (-I NAME=FILE): the files have numbers. known: descriptors of other files."""
    try:
        with TemporaryDirectory(prefix="kafkalog-proto-") as directory:
            mapped, paths = [], {}
            for i, (name, text) in enumerate(texts.items()):
                paths[name] = path = Path(directory, f"{i}.proto")
                path.write_bytes(text.encode())
                mapped.append(f"-I{name}={path}")
            out, given = Path(directory, "descriptors"), Path(directory, "known")
            given.write_bytes(known)
            # -P: no module of the working directory, whoever may write there.
            python = (sys.executable, "-P", "-m", "grpc_tools.protoc")
            options = (f"--descriptor_set_in={given}", "--include_imports", "-o", str(out))
            run = (*python, *mapped, *options, *(str(paths[name]) for name in inputs))
            done = subprocess.run(run, capture_output=True, timeout=_TIMEOUT_S, check=False)
            if not done.returncode:
                return out.read_bytes()
    except UnicodeEncodeError as error:
        raise OptionError(f"{place} is no schema of Protobuf: {error}") from None
    except subprocess.TimeoutExpired:
        raise OptionError(f"{place} takes protoc more than {_TIMEOUT_S} s") from None
    except OSError as error:  # of this machine: names and sizes are ours
        raise KafkalogError(f"protoc cannot be run for {place}: {error}") from error
    said = done.stderr.decode("utf-8", "replace")
    if "No module named" in said:
        raise OptionError(
            "schemas of Protobuf in a registry are texts, and their compiler is missing",
            hint=install_hint("protobuf"),
        )
    raise OptionError(f"{place} is no schema of Protobuf: {said.replace(directory, '')[:1000]}")


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    """(full name, DescriptorProto) of all messages of a file."""
    open_ = [(file.package, file.message_type)]
    while open_:
        outer, messages = open_.pop()
        for message in messages:
            name = f"{outer}.{message.name}" if outer else message.name
            yield name, message
            open_.append((name, message.nested_type))


def _map_entries(file: Any) -> list[str]:
    return [name for name, message in _messages(file) if message.options.map_entry]


def _restore_map_entries(file: Any, marker: str, place: str) -> None:
    """Replace the marker of each message by the option map_entry. Raises OptionError if it cannot be a map entry."""
    for name, message in _messages(file):
        if marker not in message.reserved_name:
            continue
        message.reserved_name.remove(marker)
        fields = sorted((field.number, field.name, field.label) for field in message.field)
        if fields != [(1, "key", _OPTIONAL), (2, "value", _OPTIONAL)]:
            raise OptionError(f"{place} has a message {name} with option map_entry, which is not one key and one value")
        message.options.map_entry = True
