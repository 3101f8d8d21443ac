"""The options of a bucket as deltalake names them."""

from __future__ import annotations

from collections.abc import Mapping


def deltalake_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return the storage options of the S3 server as deltalake takes them."""
    return {
        "AWS_ACCESS_KEY_ID": str(options["key"]),
        "AWS_SECRET_ACCESS_KEY": str(options["secret"]),
        "AWS_ENDPOINT_URL": str(options["endpoint_url"]),
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
