"""Hadoop's options `fs.s3a.*`, and their translation into obstore's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import boolean

HADOOP_PREFIX = "fs.s3a."
SPARK_PREFIX = "spark.hadoop."
"""Prefix of Hadoop's options in a Spark configuration."""
HADOOP_NAMES = (
    "access.key", "secret.key", "session.token", "endpoint", "endpoint.region", "path.style.access",
    "connection.ssl.enabled", "aws.credentials.provider",
)  # fmt: skip
"""Names of the known options, which follow `fs.s3a.`, or for a single bucket `fs.s3a.bucket.NAME.`."""

_CREDENTIAL_NAMES = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
"""Options whose value is passed on unchanged, with obstore's names."""
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
"""AWS's own endpoints. The group is the region, if the endpoint names one."""


def hadoop_name(suffix: str) -> str | None:
    """Return the option in HADOOP_NAMES that `suffix` names, perhaps after `bucket.NAME.`; None if it names none.

    Args:
        suffix: Part of an option's name after HADOOP_PREFIX.
    """
    if suffix in HADOOP_NAMES:
        return suffix
    if suffix.startswith("bucket."):
        for name in HADOOP_NAMES:
            if suffix.endswith("." + name) and len(suffix) > len(f"bucket..{name}"):
                return name
    return None


def obstore_config(options: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Return obstore's settings for options of Hadoop.

    Args:
        options: Options by their names in HADOOP_NAMES.
        bucket: The bucket.

    Raises:
        OptionError: For an invalid value.
    """
    config = {name: options[hadoop] for hadoop, name in _CREDENTIAL_NAMES.items() if options.get(hadoop)}
    for key, other_key in (("access.key", "secret.key"), ("secret.key", "access.key")):
        if options.get(key) and not options.get(other_key):
            raise OptionError(f"fs.s3a.{key} is given without fs.s3a.{other_key}")
    secure = boolean(HADOOP_PREFIX + "connection.ssl.enabled", options.get("connection.ssl.enabled", "true"))
    path_style = options.get("path.style.access")
    virtual_hosted = None if path_style is None else not boolean(HADOOP_PREFIX + "path.style.access", path_style)
    endpoint = options.get("endpoint", "")
    scheme, separator, host = endpoint.rpartition("://")
    scheme = scheme.lower() if separator else ("https" if secure else "http")
    host = host.rstrip("/")
    aws_endpoint = _AWS_ENDPOINT.fullmatch(host)
    if aws_endpoint is not None and aws_endpoint[1] is None:
        # The central endpoint redirects to that of the region. obstore derives the latter itself, but only for https.
        endpoint = endpoint if scheme == "http" else ""
        host = host.replace("s3.", f"s3.{config['region']}.", 1) if "region" in config else host
    elif aws_endpoint is not None:
        config.setdefault("region", aws_endpoint[1])
    if endpoint:
        if virtual_hosted and bucket:
            host = f"{bucket}.{host}"  # obstore expects the bucket in the host
        config["endpoint"] = f"{scheme}://{host}"
    if virtual_hosted is not None:
        config["virtual_hosted_style_request"] = str(virtual_hosted).lower()
    if _is_anonymous(options.get("aws.credentials.provider", "")):
        config["skip_signature"] = "true"
    return config


def _is_anonymous(providers: str) -> bool:
    """Return True if the classes in fs.s3a.aws.credentials.provider mean that requests are not signed."""
    class_names = [name.strip() for name in providers.split(",") if name.strip()]
    simple_names = [name.rpartition(".")[2].rpartition("$")[2] for name in class_names]
    for class_name, name in zip(class_names, simple_names, strict=True):
        if name not in _ANONYMOUS | _DEFAULT_CHAIN:
            raise OptionError(
                f"fs.s3a.aws.credentials.provider names {class_name}, which runs in a JVM only",
                hint="leave it out for the default chain (environment, profile, role), give "
                "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider for a public bucket, or keys as "
                "fs.s3a.access.key, fs.s3a.secret.key and fs.s3a.session.token",
            )
    if not _ANONYMOUS & set(simple_names):
        return False
    if len(simple_names) > 1:
        raise OptionError(
            "fs.s3a.aws.credentials.provider names the anonymous provider among others",
            hint="give it alone for a public bucket, or leave it out",
        )
    return True
