"""Functional training with `torch.func`: a step of gradients as values, gradients of single samples (clipped, as DP-SGD does), a critic
whose gradient is held near one (WGAN-GP).

As it is for one process; under torchrun it trains by a plan of all its ranks: `torchrun --nproc-per-node 4 functional.py`.
"""

import os
import sys

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional as F

import shardwright

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(5)
x, y = torch.randn(16, 12, generator=draws), torch.randint(0, 5, (16,), generator=draws)
model = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 5))
model = shardwright.auto_parallelize(model, (x,), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))


def loss_of(params, x, y):
    return F.cross_entropy(functional_call(model, params, (x,)), y)


def loss_of_one(params, row, label):
    return loss_of(params, row[None], label[None])


curve = []
params = {name: p.detach().clone() for name, p in model.named_parameters()}
moments = {name: torch.zeros_like(p) for name, p in params.items()}
for _ in range(8):
    grads, loss = grad_and_value(loss_of)(params, x, y)
    moments = {name: 0.9 * m + grads[name] for name, m in moments.items()}
    params = {name: p - 0.1 * moments[name] for name, p in params.items()}
    curve.append(loss.item())
model.load_state_dict(params)

for _ in range(4):
    params = {name: p.detach() for name, p in model.named_parameters()}
    grads = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    scales = (0.5 / norms).clamp(max=1) / len(x)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p -= 0.1 * torch.einsum("b,b...->...", scales, grads[name])
    curve.append(norms.sum().item())

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(4):
    mixed = x + torch.randn(16, 12, generator=draws)
    slopes = vmap(grad(lambda row: model(row[None]).sum()))(mixed)
    loss = model(x).mean() - model(mixed).mean() + (slopes.norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(loss.item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
