"""`shardwright` and `python -m shardwright`: the planner's command, with its arguments, streams and exit code."""

from __future__ import annotations

import os
import subprocess
import sys

from .errors import CommandError
from .planner import find_command


def main() -> int:
    """Runs the command. On Unix it takes the place of this process, so that signals reach it."""
    try:
        call = [*find_command(), *sys.argv[1:]]
    except CommandError as error:
        print(error, file=sys.stderr)
        return 2
    if os.name == "posix":
        os.execv(call[0], call)
    return subprocess.call(call)


if __name__ == "__main__":
    sys.exit(main())
