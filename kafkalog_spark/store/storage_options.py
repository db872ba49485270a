"""Storage options (credentials, endpoint, retries), and the settings of clients that they give.

If no credentials are given, clients use the default credential chain: environment, profile, the machine's role.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import parse_options
from kafkalog_spark.store.hadoop_options import HADOOP_NAMES, HADOOP_PREFIX, SPARK_PREFIX, hadoop_name, obstore_config
from kafkalog_spark.store.hidden_options import HiddenOptions, Secret
from kafkalog_spark.store.obstore_options import (
    CLIENT_NAMES,
    MAX_RETRIES,
    OBSTORE_NAMES,
    OBSTORE_PREFIX,
    OUR_NAMES,
    OUR_OPTIONS,
    RETRY_TIMEOUT,
    S3_NAMES,
    obstore_name,
)

FSSPEC_PREFIX = "storage.fsspec."
"""Prefix of arguments of the fsspec file system. Their names are not checked."""

PUBLIC_VALUES = frozenset({
    "endpoint.region", "path.style.access", "connection.ssl.enabled", "aws.credentials.provider", "region",
    "default_region", "virtual_hosted_style_request", "skip_signature", "allow_http", "max_retries", "retry_timeout",
    "timeout", "connect_timeout", "read_timeout", "use_emulator", "use_azure_cli", "request_payer",
})  # fmt: skip
"""Names whose values may be shown. All others may contain a secret, such as a password in an endpoint."""


def is_storage_option(name: str) -> bool:
    """Return True if a name has the prefix of a storage option. StorageOptions.of validates the rest of the name."""
    name = name.lower()
    return name.startswith((HADOOP_PREFIX, SPARK_PREFIX + HADOOP_PREFIX, OBSTORE_PREFIX))


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retries.

    Attributes:
        tries: Largest number of tries.
        seconds: Time after the first try at which no further try begins.
    """

    tries: int = MAX_RETRIES + 1
    seconds: float = RETRY_TIMEOUT


@dataclass(frozen=True)
class ClientSettings:
    """Settings of the client of one bucket.

    Attributes:
        config: Settings of the store, by obstore's names.
        client: Settings of the HTTP client, by obstore's names.
        retry: Limits of retries.
        profile: AWS profile; None for the default profile.
    """

    config: HiddenOptions
    client: HiddenOptions
    retry: RetryPolicy
    profile: str | None = None


@dataclass(frozen=True, repr=False)
class StorageOptions:
    """Storage options by full name, sorted. Equal options share a client.

    A pickle contains the secrets, because workers need them; a repr does not. Names after `storage.` are those of
    OBSTORE_NAMES.
    """

    values: tuple[tuple[str, Secret], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StorageOptions:
        """Parse the storage options among `options`; others are ignored.

        Unknown `spark.hadoop.fs.s3a.*` names are ignored too, since they configure Spark. A plain `fs.s3a.*` option
        overrides them.

        Raises:
            OptionError: For an invalid value, and for an unknown name after `fs.s3a.` or `storage.`, for which the most
                similar known name is suggested.
        """
        from_spark: dict[str, str] = {}
        given: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            hadoop_option = lower.removeprefix(SPARK_PREFIX)
            is_known = hadoop_name(hadoop_option.removeprefix(HADOOP_PREFIX)) is not None
            if lower.startswith(SPARK_PREFIX + HADOOP_PREFIX):
                if is_known:
                    from_spark[hadoop_option] = value
            elif lower.startswith(HADOOP_PREFIX):
                if not is_known:
                    raise _unknown(name, HADOOP_PREFIX, lower.removeprefix(HADOOP_PREFIX), HADOOP_NAMES)
                given[lower] = value
            elif lower.startswith(FSSPEC_PREFIX):
                given[FSSPEC_PREFIX + name[len(FSSPEC_PREFIX) :]] = value  # arguments are case-sensitive
            elif lower.startswith(OBSTORE_PREFIX):
                known = obstore_name(lower.removeprefix(OBSTORE_PREFIX))
                if known is None:
                    raise _unknown(name, OBSTORE_PREFIX, lower.removeprefix(OBSTORE_PREFIX), OBSTORE_NAMES)
                given[OBSTORE_PREFIX + known] = value
        result = cls(tuple((name, Secret(text)) for name, text in sorted({**from_spark, **given}.items())))
        buckets = {""}
        for suffix in result.with_prefix(HADOOP_PREFIX):
            if (option := hadoop_name(suffix)) != suffix:
                buckets.add(suffix.removeprefix("bucket.").removesuffix(f".{option}"))
        for bucket in buckets:
            result.for_s3(bucket)  # raises for an invalid value here, and not in a task
        return result

    def merged_over(self, others: StorageOptions) -> StorageOptions:
        """Return these options and, for names that are not among them, those of `others`."""
        return StorageOptions(tuple(sorted({**dict(others.values), **dict(self.values)}.items())))

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options with `prefix`, by name without it."""
        return {name.removeprefix(prefix): value.text for name, value in self.values if name.startswith(prefix)}

    def for_s3(self, bucket: str) -> ClientSettings:
        """Return the settings of an S3 client. Raises OptionError.

        Options `storage.*` override `fs.s3a.bucket.NAME.*`, and these override `fs.s3a.*`.
        """
        hadoop = self.with_prefix(HADOOP_PREFIX)
        for_bucket = self.with_prefix(f"{HADOOP_PREFIX}bucket.{bucket}.")
        hadoop_options = {name: text for name, text in {**hadoop, **for_bucket}.items() if name in HADOOP_NAMES}
        return self._settings({**obstore_config(hadoop_options, bucket), **self._obstore(S3_NAMES)})

    def for_gcs_or_azure(self, names: frozenset[str]) -> ClientSettings:
        """Return the settings of a client for Google Cloud Storage or Azure. names: GCS_NAMES or AZURE_NAMES."""
        return self._settings(self._obstore(names))

    def _obstore(self, names: frozenset[str]) -> dict[str, str]:
        """Return the options `storage.*` with these names."""
        return {name: text for name, text in self.with_prefix(OBSTORE_PREFIX).items() if name in names}

    def _settings(self, config: dict[str, str]) -> ClientSettings:
        client = self._obstore(CLIENT_NAMES)
        if config.get("endpoint", config.get("base_url", "")).startswith("http://"):
            client.setdefault("allow_http", "true")
        ours = parse_options(OUR_OPTIONS, self._obstore(OUR_NAMES))
        policy = RetryPolicy(1 + ours["max_retries"], ours["retry_timeout"])
        return ClientSettings(HiddenOptions(config), HiddenOptions(client), policy, ours["profile"])

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(f'{name}={_shown(name, value)}' for name, value in self.values)})"


def _unknown(name: str, prefix: str, suffix: str, known: Iterable[str]) -> OptionError:
    near = difflib.get_close_matches(suffix, sorted(known), n=1)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"the options are {prefix}{{{','.join(sorted(known))}}}"
    return OptionError(f"there is no option {name}", hint=hint)


def _shown(name: str, value: Secret) -> str:
    short_name = hadoop_name(name.removeprefix(HADOOP_PREFIX)) or name.removeprefix(OBSTORE_PREFIX)
    return value.text if short_name in PUBLIC_VALUES else repr(value)
