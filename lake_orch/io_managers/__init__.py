"""Where the values that steps return and ask for are stored: in Delta tables, or in files of the lake."""
