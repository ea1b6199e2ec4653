"""`python -m evenflow` is the `evenflow` command."""

from evenflow.cli.main import main

main()
