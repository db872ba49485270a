"""Failures of requests to object stores: what they mean, in sentences without the library's text.

That text holds the server's response, which for a wrong signature includes the key's id and the signed text. So only
known patterns of it are used.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]+)\s*</Code>|\\?\"code\\?\":\s*\\?\"([A-Za-z0-9.]+)\\?\"")
_KIND = re.compile(r"kind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b")


@dataclass(frozen=True)
class Failure:
    """Failure of one try of a request.

    Attributes:
        errno: Of the OSError to raise.
        sentence: What is wrong, without any of the library's text.
        transient: True if another try may succeed.
        answered: True if a server answered, so that the endpoint is right.
    """

    errno: int
    sentence: str
    transient: bool = False
    answered: bool = True

    def error(self, path: str, tries: int = 1) -> OSError:
        """Return the OSError, of errno's own class (PermissionError, FileNotFoundError ...), with the sentence."""
        said = f" ({tries} tries)" if tries > 1 else ""
        return OSError(self.errno, f"{self.sentence}{said}", path)


Words = dict[str, str]


def words_of(bucket: str, endpoint: str = "", vendor: str = "s3") -> Words:
    """Return the words to fill in the sentences below. endpoint: host and port; empty for the vendor's own."""
    keys, region, allowed = _ADVICE[vendor]
    return {
        "bucket": bucket, "place": endpoint or "the store", "keys": keys, "region": region, "allowed": allowed,
    }  # fmt: skip


_ADVICE = {
    "s3": (
        "give fs.s3a.access.key and fs.s3a.secret.key, or set the environment or profile that the workers see",
        "give it as fs.s3a.endpoint.region",
        "s3:ListBucket and s3:GetObject",
    ),
    "gs": (
        "give storage.service_account or storage.application_credentials, a path that the workers can read",
        "look at storage.base_url",
        "storage.objects.list and storage.objects.get",
    ),
    "abfss": (
        "give storage.account_key, storage.sas_key, or storage.client_id with .client_secret and .tenant_id",
        "look at storage.endpoint",
        "the role Storage Blob Data Reader",
    ),
}
"""How to give credentials and the region, and the permissions that reading needs; by the vendor's scheme."""
_NONE = "there is no such object"
_REPLACED = "the object was replaced since it was listed"
_CANNOT = "{place} cannot do that"
_REGION = "the bucket {bucket} lies in another region: {region}"
_UNKNOWN_KEY = "{place} does not know the access key: {keys}"
_NO_CONTAINER = "there is no container {bucket} at {place}: look at its name and the account's"
_ACCOUNT_KEY = "{place} does not take the account's key or token: look at storage.account_key and storage.sas_key"
_HEADER = "the bucket {bucket} lies in another region, or the access key is cut short: {region}"
_DENIED = "access to {bucket} is denied: the credentials that were found do not allow it (reading needs {allowed})"
_BAD_REQUEST = "{place} does not understand the request: look at the region ({region}) and the session token"
_UNREACHABLE = "{place} cannot be reached: look at the endpoint, the region and the network"
_STRANGE_KEY = (
    "a key here has an empty name between two slashes, a `.` or a control character in it, which cannot be read: "
    "rename that object"
)

_BY_CODE: dict[str, tuple[int, str]] = {
    "NoSuchKey": (errno.ENOENT, _NONE),
    "BlobNotFound": (errno.ENOENT, _NONE),
    "NoSuchBucket": (errno.ENOENT, "there is no bucket {bucket} at {place}: look at its name, and at the endpoint"),
    "ContainerNotFound": (errno.ENOENT, _NO_CONTAINER),
    "InvalidBucketName": (errno.EINVAL, "{bucket} cannot be the name of a bucket"),
    "AccessDenied": (errno.EACCES, _DENIED),
    "InvalidAccessKeyId": (errno.EACCES, _UNKNOWN_KEY),
    "XAdminUserNotFound": (errno.EACCES, _UNKNOWN_KEY),  # versitygw's, with status 404
    "SignatureDoesNotMatch": (errno.EACCES, "the secret key does not belong to the access key: {keys}"),
    "AuthenticationFailed": (errno.EACCES, _ACCOUNT_KEY),
    "ExpiredToken": (errno.EACCES, "the session token has expired: give a new one as fs.s3a.session.token"),
    "InvalidToken": (errno.EACCES, "the session token does not belong to the keys: look at fs.s3a.session.token"),
    "TokenRefreshRequired": (errno.EACCES, "the session token has to be renewed"),
    "RequestTimeTooSkewed": (errno.EACCES, "the clock of this machine is wrong by more than {place} allows: set it"),
    "AccountProblem": (errno.EACCES, "{place} says that the account cannot be used at present"),
    "InvalidObjectState": (errno.EACCES, "the object is archived: restore it to a storage class that can be read"),
    "PermanentRedirect": (errno.EINVAL, _REGION),
    "IllegalLocationConstraintException": (errno.EINVAL, _REGION),
    "AuthorizationHeaderMalformed": (errno.EINVAL, _HEADER),
    "EntityTooLarge": (errno.EFBIG, "the object is larger than {place} takes"),
    "QuotaExceeded": (errno.EDQUOT, "the bucket {bucket} is full"),
    "NotImplemented": (errno.ENOTSUP, _CANNOT),
}
"""By the code in the response's body: S3's, most of which Google's XML interface shares, and Azure's."""

_BY_STATUS: dict[int, tuple[int, str]] = {
    400: (errno.EINVAL, _BAD_REQUEST),
    401: (errno.EACCES, "{place} wants credentials: {keys}"),
    403: (errno.EACCES, _DENIED),
    404: (errno.ENOENT, _NONE),
    405: (errno.ENOTSUP, "{place} is not an object store of this kind: look at the endpoint"),
    409: (errno.EEXIST, "another request was changing it"),
    411: (errno.ENOTSUP, _CANNOT),
    412: (errno.ENOENT, _REPLACED),
    416: (errno.ENOENT, _REPLACED),
    501: (errno.ENOTSUP, _CANNOT),
}

_TRANSIENT_CODES = frozenset({
    "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "ServerBusy", "OperationTimedOut",
    "RequestLimitExceeded", "ThrottlingException", "BadDigest",
})  # fmt: skip
_BY_KIND: dict[str, tuple[int, str]] = {
    "Connect": (errno.ECONNREFUSED, _UNREACHABLE),
    "Timeout": (errno.ETIMEDOUT, "{place} did not answer in time"),
    "Request": (errno.ECONNRESET, "{place} closed the connection"),
    "Interrupted": (errno.ECONNRESET, "{place} closed the connection"),
    "Decode": (errno.ECONNRESET, "{place} broke off its answer"),
    "Unknown": (errno.ECONNRESET, "{place} closed the connection"),
}
_CREDENTIAL_PATHS = ("/latest/api/token", "/latest/meta-data/", "computeMetadata", "/metadata/identity")
"""Parts of URLs of requests for credentials, which go to other servers."""
_NO_CREDENTIALS = (
    "no credentials were found, neither in options and environment nor from the machine's role: {keys}; a public "
    "bucket is read with storage.skip_signature=true"
)


def truncated(expected: int, got: int) -> Failure:
    """Return the failure of a response with fewer bytes than requested."""
    return Failure(errno.EIO, f"the answer has {got} bytes, expected {expected}", transient=True)


REPLACED = Failure(errno.ENOENT, _REPLACED)


def failure_of(error: BaseException, words: Words) -> Failure:
    """Return the failure for an exception of the library, by its class and by known patterns in its text."""
    text = str(error)
    status_mark, kind_mark = _STATUS.search(text), _KIND.search(text)
    status = int(status_mark[1]) if status_mark else 0
    code = _code(text)
    if "Error performing" in text and any(mark in text for mark in _CREDENTIAL_PATHS):
        return Failure(errno.EACCES, _NO_CREDENTIALS.format(**words), answered=False)
    if code in _TRANSIENT_CODES or status in (408, 429) or (status >= 500 and status != 501):
        return Failure(errno.EAGAIN, f"{words['place']} is overloaded or failing ({code or f'status {status}'})", True)
    if code in _BY_CODE:
        number, sentence = _BY_CODE[code]
        return Failure(number, sentence.format(**words))
    if status in _BY_STATUS:
        number, sentence = _BY_STATUS[status]
        known = f" (status {status}, {code})" if code else ""
        return Failure(number, sentence.format(**words) + known)
    if status:
        return Failure(errno.EIO, f"{words['place']} refuses the request (status {status})")
    return _without_status(error, text, kind_mark[1] if kind_mark else "", words)


def object_is_missing(error: BaseException) -> bool:
    """Return True if the object is missing; False if its bucket or the user is."""
    text = str(error)
    return isinstance(error, FileNotFoundError) and _code(text) in ("", "NoSuchKey", "BlobNotFound")


def _code(text: str) -> str:
    """Return the code in a response's body; empty without one."""
    mark = _CODE.search(text)
    return next((group for group in mark.groups() if group), "") if mark else ""


def _without_status(error: BaseException, text: str, kind: str, words: Words) -> Failure:
    if "incorrectly configured region" in text:
        number, sentence = _BY_CODE["PermanentRedirect"]
        return Failure(number, sentence.format(**words))
    if "BadScheme" in text or "URL scheme is not allowed" in text:
        return Failure(errno.EINVAL, "the endpoint is http://, and storage.allow_http=false forbids that")
    if kind:
        number, sentence = _BY_KIND[kind]
        return Failure(number, sentence.format(**words), transient=True, answered=False)
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return Failure(errno.ENOENT, _NONE)
    if name == "PreconditionError":
        return REPLACED
    if name in ("InvalidPathError", "ValueError") and "path" in text.lower():
        return Failure(errno.EINVAL, _STRANGE_KEY)
    if isinstance(error, OSError) and error.errno:
        return Failure(error.errno, os.strerror(error.errno))
    return Failure(errno.EIO, f"the request failed in the library ({name})", transient=name == "GenericError")


class TryFailed(Exception):
    """Failure of a request that the library does not report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure
