"""Sharpness-aware minimisation: an optimizer of two steps, averages of weights (EMA, SWA), and their batch norms made anew."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import shardwright


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


torch.set_default_dtype(torch.float64)
torch.manual_seed(71)
model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
inputs, labels = torch.randn(16, 8, 10), torch.randint(0, 4, (16, 8))
model = shardwright.auto_parallelize(model, (inputs[0],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
ema, swa = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True), AveragedModel(model)
optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
schedule = SWALR(optimizer.base, swa_lr=0.05, anneal_epochs=3)
curve = []
for step in range(10):
    loss = F.cross_entropy(model(inputs[step]), labels[step], label_smoothing=0.1)
    loss.backward()
    optimizer.first_step()
    F.cross_entropy(model(inputs[step]), labels[step], label_smoothing=0.1).backward()
    optimizer.second_step()
    ema.update_parameters(model)
    if step > 4:
        swa.update_parameters(model)
        schedule.step()
    curve.append(loss.item())
update_bn([inputs[10], inputs[11]], swa)
with torch.no_grad():
    for one in (ema, swa, model):
        curve.append(F.cross_entropy(one.eval()(inputs[12]), labels[12]).item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
