"""Descriptors of messages, by Google's library: from a descriptor set (`protoc --descriptor_set_out`)."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafkalog_spark.errors import KafkalogError, OptionError, install_hint

_WELL_KNOWN = {
    f"google/protobuf/{name}.proto"
    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
}


def pool_of(content: bytes, place: str) -> tuple[Any, list[str]]:
    """(A DescriptorPool with the files of a descriptor set, their names in order). Raises OptionError."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise OptionError("Protobuf needs the library protobuf", hint=install_hint("protobuf")) from error

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(content)
    except message.DecodeError as error:
        raise OptionError(
            f"{place} is no descriptor set: {error}",
            hint="protoc --include_imports --descriptor_set_out=FILE.desc makes one",
        ) from error
    if not files.file:
        raise OptionError(f"{place} is a descriptor set without a file")
    pool = descriptor_pool.DescriptorPool()
    given = {file.name: file for file in files.file}
    added: set[str] = set()

    def add(name: str, importer: str) -> None:
        if name in added:
            return
        added.add(name)
        file = given.get(name) or _well_known(name)
        if file is None:
            raise OptionError(
                f"{place} has no {name}, which {importer} imports",
                hint="protoc --include_imports puts it into the descriptor set",
            )
        for needed in file.dependency:
            add(needed, name)
        try:
            pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise OptionError(f"{place} has a file {name} that does not hold together: {error}") from error

    for name in given:
        add(name, place)
    return pool, list(given)


def _well_known(name: str) -> Any:
    """google/protobuf/timestamp.proto and the like, which the library brings."""
    if name not in _WELL_KNOWN:
        return None
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    import_module(name.replace(".proto", "_pb2").replace("/", ".")).DESCRIPTOR.CopyToProto(file)
    return file


def message_of(pool: Any, names: list[str], message: str, place: str) -> Any:
    """The descriptor of a message by its name or full name. Raises OptionError, with the names that there are."""
    by_name: dict[str, Any] = {}
    for name in names:
        for descriptor in pool.FindFileByName(name).message_types_by_name.values():
            by_name.setdefault(descriptor.name, descriptor)
            by_name[descriptor.full_name] = descriptor
    if message not in by_name:
        try:
            return pool.FindMessageTypeByName(message)
        except KeyError:
            names = sorted({descriptor.full_name for descriptor in by_name.values()})
            raise OptionError(f"{place} has no message {message}", hint=f"it has {', '.join(names[:20])}") from None
    return by_name[message]


# Schemas of Protobuf as registries keep them: the text of a .proto file, or a descriptor in base64.

ROOT = "kafkalog.proto"  # the name of a schema's own file; those that it imports have names of their own
_IMPORTABLE = re.compile(r"(?:[\w+-][\w+.-]*/)*[\w+-][\w+.-]*\.proto", re.ASCII)
"""File names as protoc's users write them. No `=`, which ends a name where protoc is told of it."""
_LONGEST_NAME = 255
_TIMEOUT_S = 60  # protoc takes a tenth of a second


def file_descriptor(text: str, imported: Mapping[str, str], place: str) -> Any:
    """The descriptor of a file. imported: texts of the files that it imports, by name. Raises OptionError for a text
    that is no .proto file, and where grpcio-tools, which has the compiler, is not installed."""
    from google.protobuf import descriptor_pb2

    for name in imported:
        if len(name) > _LONGEST_NAME or not _IMPORTABLE.fullmatch(name):
            raise OptionError(f"{place} refers to {name[:100]!r}, which is no relative path of a .proto file")
    texts = {**imported, ROOT: text}
    files = descriptor_pb2.FileDescriptorSet()
    binary = [_as_binary(content, name) for name, content in texts.items()]
    if None not in binary:
        files.file.extend(binary)
        content = files.SerializeToString()
    else:
        content = _compiled(texts, place)
    pool, _ = pool_of(content, place)
    return pool.FindFileByName(ROOT)


def _as_binary(text: str, name: str) -> Any:
    """The descriptor in base64, as newer registries keep it; None for a text."""
    from google.protobuf import descriptor_pb2, message

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    file.name = name
    return file


def _compiled(texts: Mapping[str, str], place: str) -> bytes:
    """The descriptor set of ROOT, by protoc in a process of its own. Names of data become names of files in protoc's
    eyes only (-I NAME=FILE): the files have numbers."""
    try:
        with TemporaryDirectory(prefix="kafkalog-proto-") as directory:
            mapped = []
            for i, (name, text) in enumerate(texts.items()):
                path = Path(directory, f"{i}.proto")
                path.write_bytes(text.encode())
                mapped.append(f"-I{name}={path}")
            out = Path(directory, "descriptors")
            # -P: no module of the working directory, whoever may write there. ROOT is the last one.
            python = (sys.executable, "-P", "-m", "grpc_tools.protoc")
            run = (*python, *mapped, "--include_imports", "-o", str(out), str(path))
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
