"""Options that hold a schema or the name of a file with one, and bounds on what they may hold."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError

MOST_BYTES = 16 << 20


def schema_text(option: str, given: str) -> str:
    """Text of a schema: `given` itself where it is JSON, else of the local file of that name. Raises OptionError."""
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    return file_bytes(option, given).decode("utf-8", "replace")


def file_bytes(option: str, path: str) -> bytes:
    """Bytes of a local file. Raises OptionError, naming the option."""
    try:
        with open(path.removeprefix("file://"), "rb") as file:
            found = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OptionError(
            f"option '{option}' names {path}, which cannot be read: {error.strerror}",
            hint="the value is a schema itself, or the path of a file on the machine of the driver",
        ) from error
    if len(found) > MOST_BYTES:
        raise OptionError(f"option '{option}' names {path}, which has more than {MOST_BYTES >> 20} MB")
    return found
