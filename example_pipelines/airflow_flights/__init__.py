"""The flights of `example_pipelines.flights`, as DAGs of Airflow on the same lake."""
