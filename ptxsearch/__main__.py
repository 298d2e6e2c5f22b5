"""`python -m ptxsearch` is the command line."""

from ptxsearch.cli import main

main()
