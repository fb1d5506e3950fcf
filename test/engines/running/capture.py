"""Captures models: `capture.py FOLDER NAME...` writes FOLDER/NAME.fx.txt and its record."""

import sys
from pathlib import Path

from models import sample
from shardwright import capture

folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    one = sample(name)
    capture(one.model, one.args, one.kwargs, loss=one.loss, targets=one.targets, path=folder / f"{name}.fx.txt")
