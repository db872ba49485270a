"""Schemas of Protobuf as registries keep them: the text of a .proto file, or a descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.descriptors import pool_of

ROOT = "kafkalog.proto"
"""The name of a schema's own file; those that it imports have names of their own."""
_TIMEOUT_S = 60


def file_descriptor(text: str, imported: Mapping[str, str], place: str) -> Any:
    """The descriptor of a file. imported: texts of the files that it imports, by name. Raises OptionError for a text
    that is no .proto file, and where grpcio-tools, which has the compiler, is not installed."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    binary = [_as_binary(one, name) for name, one in {**imported, ROOT: text}.items()]
    if all(one is not None for one in binary):
        for one in binary:
            files.file.append(one)
        content = files.SerializeToString()
    else:
        content = _compiled(text, imported, place)
    pool, _ = pool_of(content, place)
    return pool.FindFileByName(ROOT)


def _as_binary(text: str, name: str) -> Any:
    """The descriptor in base64, as newer registries keep it; None for a text."""
    from google.protobuf import descriptor_pb2, message

    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    found.name = name
    return found


def _compiled(text: str, imported: Mapping[str, str], place: str) -> bytes:
    """A descriptor set, by protoc, which has a directory and a process of its own."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-proto-") as directory:
        for name, content in {**imported, ROOT: text}.items():
            path = os.path.normpath(os.path.join(directory, name))
            if not path.startswith(directory + os.sep):
                raise OptionError(f"{place} imports {name}, which is no name of a file below a directory")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        out = os.path.join(directory, ".out")
        run = (sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", "--include_imports", "-o", out, ROOT)
        done = subprocess.run(run, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=directory, check=False)
        if done.returncode:
            if "No module named" in done.stderr:
                raise OptionError(
                    "schemas of Protobuf in a registry are texts, and their compiler is missing",
                    hint="pip install 'kafkalog[protobuf]'",
                )
            raise OptionError(f"{place} is no schema of Protobuf: {done.stderr.replace(directory, '')[:1000]}")
        with open(out, "rb") as file:
            return file.read()
