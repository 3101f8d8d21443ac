"""docs/peers.md: what is claimed names its tests, and what is not there says so."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs.blocks import DOCS

PAGE = DOCS / "peers.md"


def claims() -> list[tuple[str, str, str]]:
    """Return the subject, the claim about this project and the tests of each row."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    texts = [[cell.strip() for cell in row] for row in rows]
    return [(row[0], row[-2], row[-1]) for row in texts if row[-1] != "Tests"]


def test_every_claim_names_its_tests() -> None:
    all_claims = claims()
    assert len(all_claims) >= 60
    for what, here, tests in all_claims:
        denied = re.match(r"no(t yet)?\b", here) is not None
        assert (tests == "–") <= denied, f"{what}: {here!r} is claimed, and no test named"
        assert denied or re.fullmatch(r"(`tests/[^`]+` ?)+", tests), what


def test_deltalake_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['deltalake'] = None; "
        "import lake_orch, lake_core.delta, lake_orch.maintenance, lake_orch.landing_zone, lake_orch.change_sensors"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
