"""Sessions: the one part of a lake that takes writes (Arraylake: sessions, transactions and isolation).

A session sees the commit that it began with and its own changes, and nothing of what others publish in the meantime.
`Session` is private to a process and publishes at its end; `SharedSession` is worked in by several processes, each by a
`SessionWriter`, and published once.
"""
