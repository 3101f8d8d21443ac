"""Where the lake of the example lies, and where its files arrive."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LAKE_ROOT = os.environ.get("LAKE_ROOT") or str(REPOSITORY / ".lake")
IS_LOCAL = "://" not in LAKE_ROOT
LANDING = os.environ.get("LAKE_LANDING") or f"{LAKE_ROOT.rstrip('/') if IS_LOCAL else REPOSITORY / '.lake'}-landing"
