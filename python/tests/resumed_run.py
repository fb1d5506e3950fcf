"""One epoch of a run that other processes began or will go on with, by the functions of python/README.md.

resumed_run.py CHECKPOINT|- NEXT ANSWER
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shardwright


def documented() -> dict[str, Any]:
    """The functions that the page gives to copy."""
    page = Path(shardwright.__file__).parents[1] / "README.md"
    found = re.search(r"```python\n(import torch\.distributed\.checkpoint as dcp\n.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names


def train(checkpoint: str, following: str) -> list[float]:
    """The losses of one epoch, and the learning rate after it."""
    torch.manual_seed(13)
    model: Any = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
    recipe = os.environ.get("RECIPE")
    model = shardwright.auto_parallelize(model, (torch.zeros(8, 10),), "dp=-1", cluster="dgx-h100", recipe=recipe, quiet=True)
    groups = [{"params": model[0].parameters(), "weight_decay": 0.1}, {"params": model[3].parameters(), "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    draws = torch.Generator().manual_seed(15)
    rows = TensorDataset(torch.randn(32, 10, generator=draws), torch.randint(0, 4, (32,), generator=draws))
    loader = DataLoader(rows, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(14))
    functions = documented()
    if checkpoint != "-":
        functions["resume"](checkpoint, model, optimizer, schedule, loader)
    curve = []
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item())
    schedule.step()
    functions["save"](following, model, optimizer, schedule, loader)
    return [*curve, optimizer.param_groups[1]["lr"]]


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    answer = train(*sys.argv[1:3])
    if os.environ.get("RANK", "0") == "0":
        Path(sys.argv[3]).write_text(" ".join(f"{value:.12f}" for value in answer))
