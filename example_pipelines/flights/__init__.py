"""All flights that left New York City in 2013: a small pipeline on real data, with Spark, Arrow, Delta tables and arrays."""
