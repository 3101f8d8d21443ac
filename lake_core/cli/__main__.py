"""`python -m lake_core.cli`: the command `lake`."""

from lake_core.cli.main import main

main()
