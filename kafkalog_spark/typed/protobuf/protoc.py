"""Runs protoc, the compiler of Protobuf schemas, which is part of the package grpcio-tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kafkalog_spark.errors import KafkalogError, OptionError, install_hint

_TIMEOUT_S = 60  # far more than protoc needs for any schema


def run_protoc(inputs: Sequence[str], texts: Mapping[str, str], importable: bytes, origin: str) -> bytes:
    """Compile .proto files.

    The names of the files come from a registry and are never used as paths: the texts are written to numbered files,
    and protoc maps the names to them (-I NAME=FILE).

    Args:
        inputs: Names of the files to compile.
        texts: Texts of the files to compile and of files that they import, by name.
        importable: Serialized FileDescriptorSet of further files that may be imported.
        origin: Where the schema comes from, for errors.

    Returns:
        A serialized FileDescriptorSet of the compiled files and their imports.

    Raises:
        OptionError: If protoc refuses the schema or is not installed.
        KafkalogError: If protoc cannot be run.
    """
    try:
        with TemporaryDirectory(prefix="kafkalog-proto-") as directory:
            paths = {name: Path(directory, f"{i}.proto") for i, name in enumerate(texts)}
            for name, text in texts.items():
                paths[name].write_bytes(text.encode())
            output, importable_path = Path(directory, "descriptors"), Path(directory, "known")
            importable_path.write_bytes(importable)
            command = [
                *(sys.executable, "-P", "-m", "grpc_tools.protoc"),  # -P: others may be able to write to the cwd
                *(f"-I{name}={path}" for name, path in paths.items()),
                *(f"--descriptor_set_in={importable_path}", "--include_imports", "-o", str(output)),
                *(str(paths[name]) for name in inputs),
            ]
            process = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
            if not process.returncode:
                return output.read_bytes()
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
