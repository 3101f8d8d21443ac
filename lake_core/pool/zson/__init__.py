"""ZSON, the text of Zed values, as the `zed` command prints it.

How it hangs together: `formatter` writes values, and `reader` reads them: `parser` and `scanner` turn a text into a
`syntax` tree; `analyzer` finds the types of its values. `primitive_text` is the text of numbers, times and addresses
both ways, `type_text` that of types, `quoting` that of names and strings.
"""
