"""Pages of a lake for a browser: branches, commits, differences and rows. `lake ui` serves them.

How it hangs together: `server` starts uvicorn with the app of `app`, whose requests pass `guard`. A handler takes a
`Visit` (a request with the refs as of its start) and returns a `Page`, which `page` renders from `templates`, or as the
same JSON that the command prints. Handlers ask formats through `lake_core.inspection` alone.
"""
