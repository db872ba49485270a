"""Storage options (credentials, endpoint, retries), parsed without any library.

Unset options fall back to the default credential chain: environment, profile, the machine's role.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, parsed, plain_text
from kafkalog_spark.store.hidden_options import HiddenOptions, Secret

# Known option names: Hadoop's `fs.s3a.*`, and obstore's, given as `storage.*`. A test compares these tables with the
# installed obstore.

HADOOP_PREFIX = "fs.s3a."
SPARK_PREFIX = "spark.hadoop."
OBSTORE_PREFIX = "storage."
FSSPEC_PREFIX = "storage.fsspec."
"""Prefix of arguments of the fsspec file system. Their names are not checked."""

HADOOP_NAMES = (
    "access.key", "secret.key", "session.token", "endpoint", "endpoint.region", "path.style.access",
    "connection.ssl.enabled", "aws.credentials.provider",
)  # fmt: skip
"""After `fs.s3a.`, or after `fs.s3a.bucket.NAME.` for one bucket."""

MAX_RETRIES = 10
RETRY_TIMEOUT = 120.0
"""Seconds: long enough for a bucket that responds SlowDown while it splits. Spark retries a failed task."""


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1e6:
        raise OptionError(f"option '{OBSTORE_PREFIX}{name}' must be a number from 0 to 999999, got '{text}'")
    return number


def _whole_number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text.strip(), re.ASCII):
        raise OptionError(f"option '{OBSTORE_PREFIX}{name}' must be a whole number from 0 to 999999, got '{text}'")
    return int(text)


OUR_OPTIONS = (
    OptionSpec("profile", plain_text),
    OptionSpec("max_retries", _whole_number, str(MAX_RETRIES)),
    OptionSpec("retry_timeout", _number, str(RETRY_TIMEOUT)),
)
"""Our own `storage.*` options; not passed to obstore."""
OUR_NAMES = frozenset(spec.name for spec in OUR_OPTIONS)

S3_NAMES = frozenset({
    "access_key_id", "secret_access_key", "session_token", "region", "default_region", "endpoint",
    "virtual_hosted_style_request", "s3_express", "imdsv1_fallback", "metadata_endpoint", "unsigned_payload",
    "checksum_algorithm", "container_credentials_relative_uri", "container_credentials_full_uri",
    "container_authorization_token_file", "web_identity_token_file", "role_arn", "role_session_name",
    "endpoint_url_sts", "skip_signature", "disable_tagging", "disable_bulk_delete", "request_payer",
    "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled", "sse_customer_key_base64",
    "conditional_put",
})  # fmt: skip
GCS_NAMES = frozenset({
    "service_account", "service_account_key", "base_url", "application_credentials", "bearer_token", "skip_signature",
})  # fmt: skip
AZURE_NAMES = frozenset({
    "account_name", "account_key", "client_id", "client_secret", "tenant_id", "authority_host", "sas_key", "token",
    "use_emulator", "use_fabric_endpoint", "endpoint", "msi_endpoint", "object_id", "msi_resource_id",
    "federated_token_file", "use_azure_cli", "skip_signature", "disable_tagging", "fabric_token_service_url",
    "fabric_workload_host", "fabric_session_token", "fabric_cluster_identifier", "credential_type", "encryption_key",
})  # fmt: skip
CLIENT_NAMES = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "randomize_addresses",
    "read_timeout", "timeout", "user_agent",
})  # fmt: skip

_ALIASES = {
    "aws_token": "session_token",
    "endpoint_url": "endpoint",
    "aws_endpoint_url": "endpoint",
    "aws_endpoint_url_s3": "endpoint",
    "aws_endpoint_url_sts": "endpoint_url_sts",
    "storage_account_name": "account_name",
    "storage_account_key": "account_key",
    "storage_access_key": "account_key",
    "access_key": "account_key",
    "sas_token": "sas_key",
    "storage_sas_token": "sas_key",
    "storage_sas_key": "sas_key",
}
_VENDORS = ("aws_", "azure_", "google_")

PUBLIC_VALUES = frozenset({
    "endpoint.region", "path.style.access", "connection.ssl.enabled", "aws.credentials.provider", "region",
    "default_region", "virtual_hosted_style_request", "skip_signature", "allow_http", "max_retries", "retry_timeout",
    "timeout", "connect_timeout", "read_timeout", "use_emulator", "use_azure_cli", "request_payer",
})  # fmt: skip
"""Names whose values may be shown. All others may contain a secret, such as a password in an endpoint."""

_ANONYMOUS = frozenset({"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"})
_DEFAULT_CHAIN = frozenset({
    "DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider", "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider", "EnvironmentVariableCredentialsProvider", "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider", "EC2ContainerCredentialsProviderWrapper", "ContainerCredentialsProvider",
    "WebIdentityTokenCredentialsProvider", "WebIdentityTokenFileCredentialsProvider", "ProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
})  # fmt: skip
"""Classes of Hadoop and of both AWS SDKs that use parts of the default credential chain."""

_AWS_ENDPOINT = re.compile(r"s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-[0-9]+))?\.amazonaws\.com(?:\.cn)?")
"""AWS's own endpoints, with the region if they name one."""

OBSTORE_NAMES = S3_NAMES | GCS_NAMES | AZURE_NAMES | CLIENT_NAMES | OUR_NAMES


def obstore_name(name: str) -> str | None:
    """Return obstore's name for a `storage.*` option, also with a vendor's prefix; None if it has no such option."""
    name = name.lower()
    for candidate in (_ALIASES.get(name), name, *(name.removeprefix(vendor) for vendor in _VENDORS)):
        if candidate is not None:
            candidate = _ALIASES.get(candidate, candidate)
            if candidate in OBSTORE_NAMES:
                return candidate
    return None


def is_storage_option(name: str) -> bool:
    """Return True for the prefixes of storage options. StorageOptions.of validates the name itself."""
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
        config, client: obstore's names and values of the store's and of the HTTP client's settings.
        profile: AWS profile; None for the default one.
    """

    config: HiddenOptions
    client: HiddenOptions
    retry: RetryPolicy
    profile: str | None = None


@dataclass(frozen=True, repr=False)
class StorageOptions:
    """Storage options by full name, sorted. Equal options lead to equal clients.

    Pickles carry the secrets, because workers need them; reprs do not. Names after `storage.` are obstore's.
    """

    values: tuple[tuple[str, Secret], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StorageOptions:
        """Parse the storage options among `options`; others are ignored.

        Unknown `spark.hadoop.fs.s3a.*` names are ignored too, since they configure Spark. A plain `fs.s3a.*` option
        overrides them.

        Raises:
            OptionError: For invalid values, and for unknown names after `fs.s3a.` or `storage.`, with the nearest one.
        """
        of_spark: dict[str, str] = {}
        given: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            of_hadoop = lower.removeprefix(SPARK_PREFIX)
            is_known = _hadoop_name(of_hadoop.removeprefix(HADOOP_PREFIX)) is not None
            if lower.startswith(SPARK_PREFIX + HADOOP_PREFIX):
                if is_known:
                    of_spark[of_hadoop] = value
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
        result = cls(tuple((name, Secret(text)) for name, text in sorted({**of_spark, **given}.items())))
        endings = {name: _hadoop_name(name) for name in result.with_prefix(HADOOP_PREFIX)}
        buckets = {name.removeprefix("bucket.").removesuffix(f".{end}") for name, end in endings.items() if end != name}
        for bucket in buckets | {""}:  # raises for invalid values now, and not in a task
            result.for_s3(bucket)
        return result

    def merged_over(self, others: StorageOptions) -> StorageOptions:
        """Return these options, and those of `others` that are not among them."""
        return StorageOptions(tuple(sorted({**dict(others.values), **dict(self.values)}.items())))

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options with `prefix`, the prefix stripped."""
        return {name.removeprefix(prefix): value.text for name, value in self.values if name.startswith(prefix)}

    def for_s3(self, bucket: str) -> ClientSettings:
        """Return the settings of an S3 client. Raises OptionError.

        `storage.*` overrides options of this bucket, which override those of all buckets.
        """
        hadoop = self.with_prefix(HADOOP_PREFIX)
        of_bucket = self.with_prefix(f"{HADOOP_PREFIX}bucket.{bucket}.")
        hadoop_options = {name: text for name, text in {**hadoop, **of_bucket}.items() if name in HADOOP_NAMES}
        return self._settings({**_from_hadoop(hadoop_options, bucket), **self._obstore(S3_NAMES)})

    def for_gcs_or_azure(self, names: frozenset[str]) -> ClientSettings:
        """Return the settings of a client of Google's or Azure's store. names: GCS_NAMES or AZURE_NAMES."""
        return self._settings(self._obstore(names))

    def _obstore(self, names: frozenset[str]) -> dict[str, str]:
        return {name: text for name, text in self.with_prefix(OBSTORE_PREFIX).items() if name in names}

    def _settings(self, config: dict[str, str]) -> ClientSettings:
        client = self._obstore(CLIENT_NAMES)
        if config.get("endpoint", config.get("base_url", "")).startswith("http://"):
            client.setdefault("allow_http", "true")
        ours = parsed(OUR_OPTIONS, self._obstore(OUR_NAMES))
        policy = RetryPolicy(1 + ours["max_retries"], ours["retry_timeout"])
        return ClientSettings(HiddenOptions(config), HiddenOptions(client), policy, ours["profile"])

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(f'{name}={_shown(name, value)}' for name, value in self.values)})"


def _from_hadoop(options: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Return obstore's settings for `fs.s3a.*` options. Raises OptionError."""
    config: dict[str, str] = {}
    for hadoop, name in (("access.key", "access_key_id"), ("secret.key", "secret_access_key"),
                         ("session.token", "session_token"), ("endpoint.region", "region")):  # fmt: skip
        if options.get(hadoop):
            config[name] = options[hadoop]
    for one, other in (("access.key", "secret.key"), ("secret.key", "access.key")):
        if options.get(one) and not options.get(other):
            raise OptionError(f"fs.s3a.{one} is given without fs.s3a.{other}")
    secure = boolean(HADOOP_PREFIX + "connection.ssl.enabled", options.get("connection.ssl.enabled", "true"))
    path_style = options.get("path.style.access")
    virtual_hosted = None if path_style is None else not boolean(HADOOP_PREFIX + "path.style.access", path_style)
    endpoint = options.get("endpoint", "")
    scheme, mark, host = endpoint.rpartition("://")
    scheme = scheme.lower() if mark else ("https" if secure else "http")
    host = host.rstrip("/")
    of_aws = _AWS_ENDPOINT.fullmatch(host)
    if of_aws is not None and of_aws[1] is None:
        # The central endpoint redirects to the region's. obstore knows it, but not for http.
        endpoint = endpoint if scheme == "http" else ""
        host = host.replace("s3.", f"s3.{config['region']}.", 1) if "region" in config else host
    elif of_aws is not None:
        config.setdefault("region", of_aws[1])
    if endpoint:
        if virtual_hosted and bucket:
            host = f"{bucket}.{host}"  # obstore expects the bucket in the host
        config["endpoint"] = f"{scheme}://{host}"
    if virtual_hosted is not None:
        config["virtual_hosted_style_request"] = str(virtual_hosted).lower()
    if _anonymous(options.get("aws.credentials.provider", "")):
        config["skip_signature"] = "true"
    return config


def _anonymous(providers: str) -> bool:
    """Return True if requests are unsigned, by the classes in fs.s3a.aws.credentials.provider."""
    names = [name.strip() for name in providers.split(",") if name.strip()]
    simple = [name.rpartition(".")[2].rpartition("$")[2] for name in names]
    for full, name in zip(names, simple, strict=True):
        if name not in _ANONYMOUS | _DEFAULT_CHAIN:
            raise OptionError(
                f"fs.s3a.aws.credentials.provider names {full}, which runs in a JVM only",
                hint="leave it out for the default chain (environment, profile, role), give "
                "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider for a public bucket, or keys as "
                "fs.s3a.access.key, fs.s3a.secret.key and fs.s3a.session.token",
            )
    if not simple or not _ANONYMOUS & set(simple):
        return False
    if len(simple) > 1:
        raise OptionError(
            "fs.s3a.aws.credentials.provider names the anonymous provider among others",
            hint="give it alone for a public bucket, or leave it out",
        )
    return True


def _hadoop_name(rest: str) -> str | None:
    """Return the Hadoop option that `rest` names, with or without `bucket.NAME.`; None if it names none."""
    if rest in HADOOP_NAMES:
        return rest
    if rest.startswith("bucket."):
        for name in HADOOP_NAMES:
            if rest.endswith("." + name) and len(rest) > len(f"bucket..{name}"):
                return name
    return None


def _unknown(name: str, prefix: str, rest: str, known: Iterable[str]) -> OptionError:
    near = difflib.get_close_matches(rest, sorted(known), n=1)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {prefix}{{{','.join(sorted(known))}}}"
    return OptionError(f"there is no option {name}", hint=hint)


def _shown(name: str, value: Secret) -> str:
    known = _hadoop_name(name.removeprefix(HADOOP_PREFIX)) or name.removeprefix(OBSTORE_PREFIX)
    return value.text if known in PUBLIC_VALUES else repr(value)
