"""The S3 server and the proxy before it, for tiers in a bucket."""

from tests.store.conftest import proxy, s3

__all__ = ["proxy", "s3"]
