"""Parameters in the script's own hands: a list from before, gradients as values, noise, masks, penalties, a first-order inner step."""

import os
import sys

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import shardwright

torch.set_default_dtype(torch.float64)
torch.manual_seed(72)
model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 4))
inputs, labels = torch.randn(16, 8, 10), torch.randint(0, 4, (16, 8))
params, first = list(model.parameters()), model[0].weight
model = shardwright.auto_parallelize(model, (inputs[0],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.RMSprop(params, lr=1e-2)
torch.manual_seed(73)
curve = []
for step in range(8):
    loss = F.cross_entropy(model(inputs[step]), labels[step]) + 1e-3 * sum(p.abs().sum() for p in params)
    loss = loss + 1e-3 * (first.T @ first - torch.eye(10)).square().sum()
    for p, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
        p.grad = gradient
        p.grad.add_(torch.randn_like(p), alpha=1e-3)
    norm = nn.utils.clip_grad_norm_(params, 0.1)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        first.mul_(torch.bernoulli(torch.full_like(first, 0.95)))
        first[first.abs() < 1e-2] = 0
    curve += [loss.item(), norm.item(), (first == 0).sum().item()]
weights = dict(model.named_parameters())
for step in range(4):
    inner = F.cross_entropy(model(inputs[8 + step]), labels[8 + step])
    gradients = torch.autograd.grad(inner, list(weights.values()))
    fast = {name: p - 0.1 * g for (name, p), g in zip(weights.items(), gradients, strict=True)}
    outer = F.cross_entropy(functional_call(model, fast, (inputs[12 + step],)), labels[12 + step])
    outer.backward()
    optimizer.step()
    optimizer.zero_grad()
    curve.append(outer.item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
