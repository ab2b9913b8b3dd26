"""`python -m workbench` is the command line."""

from workbench.commands.cli import main

main()
