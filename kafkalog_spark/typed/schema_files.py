"""Values of options that contain a schema, or the path of a local file with a schema."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError

MAX_FILE_BYTES = 16 << 20


def schema_text(option: str, value: str) -> str:
    """Return the text of the schema that an option contains or names.

    Args:
        option: Name of the option, for errors.
        value: Value of the option: the schema itself if it looks like JSON, otherwise the path of a local file.

    Raises:
        OptionError: If the file cannot be read or is too large.
    """
    if value.lstrip()[:1] in ("{", "[", '"'):
        return value
    return file_bytes(option, value).decode("utf-8", "replace")


def file_bytes(option: str, path: str) -> bytes:
    """Return the content of a local file that an option names.

    Args:
        option: Name of the option, for errors.
        path: Path or file:// URL.

    Raises:
        OptionError: If the file cannot be read or is larger than `MAX_FILE_BYTES`.
    """
    try:
        with open(path.removeprefix("file://"), "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OptionError(
            f"option '{option}' names {path}, which cannot be read: {error.strerror}",
            hint="the value is a schema itself, or the path of a file on the machine of the driver",
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise OptionError(f"option '{option}' names {path}, which is larger than {MAX_FILE_BYTES >> 20} MB")
    return content
