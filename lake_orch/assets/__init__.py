"""The lane from a value to a dataset and back, for every format and every orchestrator."""
