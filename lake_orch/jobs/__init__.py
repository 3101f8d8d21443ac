"""Jobs whose runs are one session of the lake each: their executor, ops and backfills, and the sensors that follow them."""
