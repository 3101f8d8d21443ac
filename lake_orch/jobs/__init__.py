"""Jobs whose runs are one session of the lake each: executor, ops, backfills, and sensors for the sessions."""
