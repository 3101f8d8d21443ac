"""All flights that left New York City in 2013: a small pipeline on real data, with Spark, Delta tables and arrays."""
