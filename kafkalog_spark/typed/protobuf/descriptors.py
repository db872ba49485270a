"""Descriptors of the messages in a descriptor set (`protoc --descriptor_set_out`), built with Google's library."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.typed.protobuf.known_types import known_file


def pool_of(content: bytes, origin: str) -> tuple[Any, list[str]]:
    """Load the files of a descriptor set, and the known files that they import, into a pool.

    Args:
        content: Serialized FileDescriptorSet.
        origin: Where the descriptor set comes from, for errors.

    Returns:
        (DescriptorPool, names of the files of the descriptor set in order).

    Raises:
        OptionError: If the content is not a descriptor set, an import is missing, or the library is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise OptionError("Protobuf needs the library protobuf", hint=install_hint("protobuf")) from error

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(content)
    except message.DecodeError as error:
        raise OptionError(
            f"{origin} is not a descriptor set: {error}",
            hint="protoc --include_imports --descriptor_set_out=FILE.desc creates one",
        ) from error
    if not files.file:
        raise OptionError(f"{origin} is a descriptor set without a file")
    pool = descriptor_pool.DescriptorPool()
    files_by_name = {file.name: file for file in files.file}
    added: set[str] = set()

    def add(name: str, importer: str) -> None:
        if name in added:
            return
        added.add(name)
        file = files_by_name.get(name) or known_file(name)
        if file is None:
            raise OptionError(
                f"{origin} has no {name}, which {importer} imports",
                hint="protoc --include_imports puts it into the descriptor set",
            )
        for imported in file.dependency:
            add(imported, name)
        try:
            pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise OptionError(f"{origin} has a file {name} with an error: {error}") from error

    for name in files_by_name:
        add(name, origin)
    return pool, list(files_by_name)


def message_of(pool: Any, names: list[str], message: str, origin: str) -> Any:
    """Return the descriptor of a message.

    Args:
        pool: DescriptorPool.
        names: Names of the files to search first.
        message: Name or full name of the message.
        origin: Where the descriptors come from, for errors.

    Raises:
        OptionError: If there is no such message. The hint lists the existing ones.
    """
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
            raise OptionError(f"{origin} has no message {message}", hint=f"it has {', '.join(names[:20])}") from None
    return by_name[message]
