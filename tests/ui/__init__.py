"""Tests of the pages of `lake ui`."""
