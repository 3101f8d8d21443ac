"""IO managers that store and load the values of steps: in Delta tables, Icechunk repositories, pools, or files."""
