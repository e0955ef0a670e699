"""`python -m berncert` is `berncert`."""

import sys

from berncert.cli import main

sys.exit(main())
