"""Schemas of Protobuf as registries keep them: the text of a .proto file, or a descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.typed.protobuf.descriptors import pool_of

ROOT = "kafkalog.proto"
"""The name of a schema's own file; those that it imports have names of their own."""
_IMPORTABLE = re.compile(r"(?:[\w+-][\w+.-]*/)*[\w+-][\w+.-]*\.proto", re.ASCII)
"""What protoc's users call files. No `=`, which ends a name where protoc is told of it."""
_LONGEST_NAME = 255
_TIMEOUT_S = 60
"""protoc takes a tenth of a second."""


def file_descriptor(text: str, imported: Mapping[str, str], place: str) -> Any:
    """The descriptor of a file. imported: texts of the files that it imports, by name. Raises OptionError for a text
    that is no .proto file, and where grpcio-tools, which has the compiler, is not installed."""
    from google.protobuf import descriptor_pb2

    for name in imported:
        if len(name) > _LONGEST_NAME or not _IMPORTABLE.fullmatch(name):
            raise OptionError(f"{place} refers to {name[:100]!r}, which is no relative path of a .proto file")
    texts = {**imported, ROOT: text}
    files = descriptor_pb2.FileDescriptorSet()
    binary = [_as_binary(one, name) for name, one in texts.items()]
    if all(one is not None for one in binary):
        for one in binary:
            files.file.append(one)
        content = files.SerializeToString()
    else:
        content = _compiled(texts, place)
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


def _compiled(texts: Mapping[str, str], place: str) -> bytes:
    """The descriptor set of ROOT, by protoc, which has a process of its own.

    Names of data become names of files in protoc's eyes only (-I NAME=FILE): the files have numbers.
    """
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
            hint="pip install 'kafkalog[protobuf]'",
        )
    raise OptionError(f"{place} is no schema of Protobuf: {said.replace(directory, '')[:1000]}")
