"""Names of run tags, and of metadata of materializations and commits, which link a run with its writes.

A user sets the tags `lake/scope`, `lake/gate`, `lake/branch` and `lake/backfills`. A run with a session shows one tag
more, `lake/session`. Internal tags have Dagster's prefix for tags that the UI hides. Filters find them, too.
"""

from __future__ import annotations

# Tags of runs that a user sets.
SCOPE_TAG = "lake/scope"
"""`run` or `asset`: what is published together. It overrides the executor and the resource."""
GATE_TAG = "lake/gate"
"""`blocking`, `error` or `none`: which checks that fail with severity ERROR prevent publishing a run's session."""
BRANCH_TAG = "lake/branch"
"""The branch that a run reads and publishes to, instead of the resource's."""
BACKFILLS_TAG = "lake/backfills"
"""`gather` or `publish`: overrides the resource's setting for the runs of a backfill."""

# Tags of runs that the code writes.
SESSION_TAG = "lake/session"
"""The session that a run writes into. It is the only one of these tags that the UI shows, and is metadata of events."""
_HIDDEN = ".dagster/lake_"
EPOCH_TAG = f"{_HIDDEN}epoch"
"""The epoch at which the run opened or resumed its session. Writers with an older epoch are refused."""
OWNER_TAG = f"{_HIDDEN}run"
"""The run that these tags were written for: Dagster copies a run's tags to its re-executions."""
PUBLISHER_TAG = f"{_HIDDEN}publisher"
"""The publisher of the run's session: `executor`, `testing`, `op` or `teardown`."""
ROOT_TAG = f"{_HIDDEN}root"
"""The root of the lake that has the run's session, for a recovery."""
HELD_GATE_TAG = f"{_HIDDEN}held_gate"
"""The gate that a run's session must pass, for a recovery with another resource."""
WRITES_TAG = f"{_HIDDEN}writes_"
"""With what identifies a lake: the run publishes each of its outputs there by itself, or is fenced by now."""
JOB_SCOPE_TAG, JOB_GATE_TAG = f"{_HIDDEN}job_scope", f"{_HIDDEN}job_gate"
"""Tags that `lake_job` sets for its runs. `lake/scope` and `lake/gate` override them."""

# Metadata of materializations and observations, beside those of `lake_pipes.metadata`.
PARTITION_ROWS = "dagster/partition_row_count"
READ_WITH = "lake/read_with"
"""Code to copy that reads a table as published. A prefix of a commit's id is enough."""
VERSION = "lake/version"

# Metadata of commits.
RUN = "dagster/run"
STEP = "dagster/step"
OUTPUT = "dagster/output"
