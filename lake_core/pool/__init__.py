"""Zed pools: records of any type in lakes of format version 3, byte for byte as the `zed` command writes them."""
