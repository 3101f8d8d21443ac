"""Zed values as Arrow columns, without a Python object per value.

How it hangs together: `arrow_type` says which Arrow type a Zed type has. `column_reader` turns the bodies in a frame
into columns, and `column_writer` columns into what a frame holds. `columns` reads whole streams that way; `table` makes
tables of columns and back. `shapes` counts the types of a stream, and `fuse` makes one table of it.
"""
