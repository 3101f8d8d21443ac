"""Jobs with one session of the lake a run: their executor, ops and backfills, and the sensors for their sessions."""
