"""A run that is stopped and goes on: torch.distributed.checkpoint, states of optimizer, schedule and sampler, two parameter groups.

CHECKPOINT is that of another run, which may have had other processes and another plan.
"""

import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shardwright


def start():
    global model, optimizer, schedule, loader
    torch.manual_seed(13)
    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 4))
    model = shardwright.auto_parallelize(model, (torch.zeros(8, 10),), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    order = torch.Generator().manual_seed(14)
    loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True, generator=order)


def train():
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item())
    schedule.step()


def states():
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "schedule": schedule.state_dict(), "order": loader.generator.get_state()}


torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(15)
images, labels = torch.randn(32, 10, generator=draws), torch.randint(0, 4, (32,), generator=draws)
curve = []
start()
train()
dcp.save(states(), checkpoint_id="checkpoint")
train()
start()
found = states()
dcp.load(found, checkpoint_id=os.environ.get("CHECKPOINT", "checkpoint"))
set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
schedule.load_state_dict(found["schedule"])
loader.generator.set_state(found["order"])
train()
curve.append(optimizer.param_groups[0]["lr"])
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
