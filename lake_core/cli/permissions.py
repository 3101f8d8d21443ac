"""The permissions that a bucket's policy must grant to a lake, in the terms of each cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Verb: TypeAlias = Literal["put", "get", "list", "delete"]

NEEDED_BY: Final[Mapping[Verb, str]] = {
    "put": "publishers",
    "get": "readers and publishers",
    "list": "readers and publishers",
    "delete": "maintenance, and publishers below _lake/ so that they need not wait for each other",
}
"""Which processes need a permission."""

_AZURE: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_NAMES: Final[Mapping[str, Mapping[Verb, str]]] = {
    "s3": {
        "put": "s3:PutObject on arn:aws:s3:::{bucket}/{prefix}*",
        "get": "s3:GetObject on arn:aws:s3:::{bucket}/{prefix}*",
        "list": "s3:ListBucket on arn:aws:s3:::{bucket}",
        "delete": "s3:DeleteObject on arn:aws:s3:::{bucket}/{prefix}*",
    },
    "gs": {
        "put": "storage.objects.create on the bucket {bucket}, and storage.objects.delete to replace objects",
        "get": "storage.objects.get on the bucket {bucket}",
        "list": "storage.objects.list on the bucket {bucket}",
        "delete": "storage.objects.delete on the bucket {bucket}",
    },
    "az": {
        "put": f"{_AZURE}/write on the container {{bucket}} (in a shared access signature: c and w)",
        "get": f"{_AZURE}/read on the container {{bucket}} (in a shared access signature: r)",
        "list": f"{_AZURE}/read on the container {{bucket}} (in a shared access signature: l)",
        "delete": f"{_AZURE}/delete on the container {{bucket}} (in a shared access signature: d)",
    },
}
_SCHEMES: Final = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasb": "az", "wasbs": "az"}


def permission(url: str, verb: Verb) -> str:
    """Return what a policy must allow.

    Args:
        url: The location of a lake.
        verb: What is done with its objects.
    """
    scheme, _, path = url.partition("://")
    names = _NAMES.get(_SCHEMES.get(scheme, scheme))
    if names is None:
        return "permission to write in the folder" if verb in ("put", "delete") else "permission to read the folder"
    bucket, _, prefix = path.partition("/")
    return names[verb].format(bucket=bucket.partition("@")[0], prefix=f"{prefix.strip('/')}/" if prefix else "")
