"""`python -m shardwright.tune` as a script, which forks of the tests' server can run."""

import sys

from shardwright.tune import main

sys.exit(main())
