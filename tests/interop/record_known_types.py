"""Make kafkalog_spark/typed/protobuf/known_types.textproto anew.

    python -m tests.interop.record_known_types

It needs the packages googleapis-common-protos and confluent-kafka[protobuf,schemaregistry].
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from google.protobuf import descriptor_pb2, text_format

from kafkalog_spark.typed.protobuf.known_types import DATA

_CONFLUENT = ("meta_pb2", "type.decimal_pb2", "type.variant_pb2", "types.decimal_pb2")


def main() -> None:
    """Write the descriptors of both packages."""
    google = import_module("google.type").__path__
    modules = [f"google.type.{one.name}" for one in pkgutil.iter_modules(google) if one.name.endswith("_pb2")]
    modules += [f"confluent_kafka.schema_registry.confluent.{name}" for name in _CONFLUENT]
    files = descriptor_pb2.FileDescriptorSet()
    for name in modules:
        import_module(name).DESCRIPTOR.CopyToProto(files.file.add())
    DATA.write_text(text_format.MessageToString(files))


if __name__ == "__main__":
    main()
