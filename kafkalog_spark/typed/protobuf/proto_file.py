"""Compiles Protobuf schemas as a schema registry stores them: the text of a .proto file, or a descriptor in base64."""

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

ROOT = "kafkalog.proto"  # name of a schema's own file; imported files have the names of their references
_IMPORTABLE = re.compile(r"(?:[\w+-][\w+.-]*/)*[\w+-][\w+.-]*\.proto", re.ASCII)
"""Relative paths that protoc accepts on its command line. They must not contain `=`, which ends a name there."""
_MAX_NAME = 255
_TIMEOUT_S = 60  # far more than protoc needs for any schema
_OPTIONAL = 1  # FieldDescriptorProto.LABEL_OPTIONAL, which fields of proto3 also have


class ProtoFile(NamedTuple):
    """The compiled file of a schema."""

    descriptor: Any  # FileDescriptor
    implied_entries: frozenset[str]  # full names of the map entry messages that protoc generates for `map<...>` fields


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
    """
    from google.protobuf import descriptor_pb2

    for name in imported:
        if not _is_importable(name):
            raise OptionError(f"{origin} refers to {name[:100]!r}, which is not a relative path of a .proto file")
    contents = {**imported, ROOT: text}
    binaries = {
        name: file for name, content in contents.items() if (file := _binary_descriptor(content, name)) is not None
    }
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
        # protoc refuses `option map_entry` in a text; see with_marked_map_entries.
        marker = "kafkalog_map_entry"
        while any(marker in content for content in texts.values()):
            marker += "_"
        marked = {name: with_marked_map_entries(content, marker) for name, content in texts.items()}
        inputs = [ROOT] if ROOT in texts else list(texts)
        known = [file for name, file in known_files().items() if name not in contents]
        files = descriptor_pb2.FileDescriptorSet(file=[*known, *binaries.values(), *absent.values()])
        try:
            result.ParseFromString(_compile(inputs, marked, files.SerializeToString(), origin))
        except OptionError as error:
            raise _with_missing_imports(absent, error) from None
        implied = frozenset(
            name for file in result.file if file.name == ROOT and ROOT in texts for name in _map_entries(file)
        )
        for file in result.file:
            if file.name in texts:
                _restore_map_entries(file, marker, origin)
    result_names = {file.name for file in result.file}
    result.file.extend(file for name, file in {**binaries, **absent}.items() if name not in result_names)
    try:
        pool, _ = pool_of(result.SerializeToString(), origin)
        return ProtoFile(pool.FindFileByName(ROOT), implied)
    except OptionError as error:
        raise _with_missing_imports(absent, error) from None


def _is_importable(name: str) -> bool:
    return len(name) <= _MAX_NAME and _IMPORTABLE.fullmatch(name) is not None


def _with_missing_imports(absent: Collection[str], error: OptionError) -> OptionError:
    """Return the error with a hint that lists the missing imports, because one may define an unknown type."""
    if not absent or error.hint is not None:
        return error
    names = ", ".join(sorted(absent))
    return OptionError(error.what, hint=f"the schema imports {names}, but the registry lists no such reference")


def _binary_descriptor(text: str, name: str) -> Any:
    """Return the FileDescriptorProto that newer registries store in base64; None if `text` is a .proto file."""
    from google.protobuf import descriptor_pb2, message

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    file.name = name
    return file


def _compile(inputs: list[str], texts: Mapping[str, str], known: bytes, origin: str) -> bytes:
    """Run protoc and return the descriptor set of the inputs and their imports.

    The names of imports come from a registry and are never used as paths: the files are numbered, and protoc maps the
    names to them (-I NAME=FILE).

    Args:
        inputs: Names of the files to compile.
        texts: Texts of all files by name.
        known: Serialized FileDescriptorSet of further files that may be imported.
        origin: Where the schema comes from, for errors.

    Raises:
        OptionError: If protoc refuses the schema or is not installed.
        KafkalogError: If protoc cannot be run.
    """
    try:
        with TemporaryDirectory(prefix="kafkalog-proto-") as directory:
            mapped, paths = [], {}
            for i, (name, text) in enumerate(texts.items()):
                paths[name] = path = Path(directory, f"{i}.proto")
                path.write_bytes(text.encode())
                mapped.append(f"-I{name}={path}")
            out, known_path = Path(directory, "descriptors"), Path(directory, "known")
            known_path.write_bytes(known)
            # -P: do not import modules from the working directory, which others may be able to write to.
            python = (sys.executable, "-P", "-m", "grpc_tools.protoc")
            options = (f"--descriptor_set_in={known_path}", "--include_imports", "-o", str(out))
            command = (*python, *mapped, *options, *(str(paths[name]) for name in inputs))
            process = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
            if not process.returncode:
                return out.read_bytes()
    except UnicodeEncodeError as error:
        raise OptionError(f"{origin} is not a Protobuf schema: {error}") from None
    except subprocess.TimeoutExpired:
        raise OptionError(f"protoc did not compile {origin} within {_TIMEOUT_S} s") from None
    except OSError as error:  # a problem of this machine, not of the schema
        raise KafkalogError(f"protoc cannot be run for {origin}: {error}") from error
    message = process.stderr.decode("utf-8", "replace")
    if "No module named" in message:
        raise OptionError(
            "the compiler of Protobuf schemas, grpcio-tools, is not installed",
            hint=install_hint("protobuf"),
        )
    raise OptionError(f"{origin} is not a Protobuf schema: {message.replace(directory, '')[:1000]}")


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    """Yield (full name, DescriptorProto) for all messages of a file."""
    pending = [(file.package, file.message_type)]
    while pending:
        outer, messages = pending.pop()
        for message in messages:
            name = f"{outer}.{message.name}" if outer else message.name
            yield name, message
            pending.append((name, message.nested_type))


def _map_entries(file: Any) -> list[str]:
    return [name for name, message in _messages(file) if message.options.map_entry]


def _restore_map_entries(file: Any, marker: str, origin: str) -> None:
    """Set the option map_entry on marked messages and remove the marker.

    Raises:
        OptionError: If a marked message is not a key and a value.
    """
    for name, message in _messages(file):
        if marker not in message.reserved_name:
            continue
        message.reserved_name.remove(marker)
        fields = sorted((field.number, field.name, field.label) for field in message.field)
        if fields != [(1, "key", _OPTIONAL), (2, "value", _OPTIONAL)]:
            raise OptionError(f"{origin} has a message {name} with option map_entry, but it is not a key and a value")
        message.options.map_entry = True
