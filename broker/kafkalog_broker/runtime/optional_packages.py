"""Imports of packages that only the extras [broker], [metrics] and [mirror] install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kafkalog_spark.errors import OptionError, install_hint

_USER_AND_EXTRA = {
    "xxhash": ("the broker", "broker"),
    "cryptography": ("the broker", "broker"),
    "joserfc": ("the broker", "broker"),
    "prometheus_client": ("--metrics", "metrics"),
    "aiokafka": ("a mirror", "mirror"),
}
"""Package -> the feature that needs it and the extra that installs it. uvloop is not listed: it is optional."""


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Report a missing package of an extra as an OptionError that names the extra.

    Raises:
        OptionError: If an import inside the context fails because a package of an extra is missing.
    """
    try:
        import xxhash  # noqa: F401  a package of the extra [broker], which all commands need and load in any case

        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _USER_AND_EXTRA:
            raise
        user, extra = _USER_AND_EXTRA[missing]
        raise OptionError(f"{user} needs the package {missing}", hint=install_hint(extra)) from None
