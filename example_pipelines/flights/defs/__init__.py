"""Components of the pipeline, in YAML."""
