"""ZNG, the binary format of Zed values: frames of types and values.

How it hangs together: `reader` and `writer` read and write a stream of values; `frame` is how the stream is cut and
compressed, `typedef` how it defines types, `tag` how values are delimited inside a frame.
"""
