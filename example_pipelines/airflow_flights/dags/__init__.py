"""The DAG files of the example."""
