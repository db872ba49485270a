"""Descriptors of messages, by Google's library: from a descriptor set (`protoc --descriptor_set_out`)."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.typed.protobuf.known_types import known_file


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
        file = given.get(name) or known_file(name)
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
