"""What a Dagster run is to a lake: its attempts and their lineage, the session that it writes into, the gate before it is published."""
