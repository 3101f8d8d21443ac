"""`python -m lake_orch`: the command `lake-orch`."""

from lake_orch.cli import main

if __name__ == "__main__":
    main(prog_name="lake-orch")
