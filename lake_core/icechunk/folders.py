"""The folders of a repository that hold objects named by their ids."""

from __future__ import annotations

SNAPSHOTS, MANIFESTS, TRANSACTIONS, CHUNKS = "snapshots/", "manifests/", "transactions/", "chunks/"
