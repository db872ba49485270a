"""Descriptors of messages, by Google's library: from a descriptor set (`protoc --descriptor_set_out`)."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import OptionError


def library() -> Any:
    """google.protobuf. Raises OptionError where it is not installed."""
    try:
        import google.protobuf.descriptor_pool
        import google.protobuf.message_factory
    except ImportError as error:
        raise OptionError("Protobuf needs the library protobuf", hint="pip install 'kafkalog[protobuf]'") from error
    return google.protobuf


def pool_of(content: bytes, place: str) -> tuple[Any, list[str]]:
    """(A DescriptorPool with the files of a descriptor set, their names in order). Raises OptionError."""
    protobuf = library()
    from google.protobuf import descriptor_pb2, message

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
    pool = protobuf.descriptor_pool.DescriptorPool()
    given = {one.name: one for one in files.file}
    _add_all(pool, given, place)
    return pool, list(given)


def _add_all(pool: Any, given: dict[str, Any], place: str) -> None:
    """Add files, each after those that it imports."""
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


def _well_known(name: str) -> Any:
    """google/protobuf/timestamp.proto and the like, which the library brings."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    known = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2, descriptor_pb2)
    found = next((module.DESCRIPTOR for module in known if module.DESCRIPTOR.name == name), None)
    if found is None:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    return file


def message_of(pool: Any, names: list[str], message: str, place: str) -> Any:
    """The descriptor of a message by its name or full name. Raises OptionError, with the names that there are."""
    known: dict[str, Any] = {}
    for name in names:
        for descriptor in pool.FindFileByName(name).message_types_by_name.values():
            known.setdefault(descriptor.name, descriptor)
            known[descriptor.full_name] = descriptor
    if message not in known:
        try:
            return pool.FindMessageTypeByName(message)
        except KeyError:
            names = sorted({one.full_name for one in known.values()})
            raise OptionError(f"{place} has no message {message}", hint=f"it has {', '.join(names[:20])}") from None
    return known[message]
