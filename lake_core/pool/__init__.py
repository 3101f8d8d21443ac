"""Zed pools: records of any type in lakes of format version 3, byte for byte as the `zed` command writes them.

How it hangs together: `types` are the types of the Zed data model, `value` its values: a type and a body, which `primitive` and
`type_value` encode. `order` is the order in which pools sort values. `zng` is the binary format of values, `zson` their text, `ndjson`
what of them JSON can tell. `arrow` reads and writes ZNG as columns and tables; `fused_type` is the type that several types have in common.
"""
