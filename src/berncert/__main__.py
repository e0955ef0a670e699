"""`python -m berncert` is `berncert`."""

import sys

from berncert.cli import main

if __name__ == "__main__":  # not in the processes that it starts
    sys.exit(main())
