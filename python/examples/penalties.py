"""Penalties on gradients: a critic whose slope is held near one (WGAN-GP), a network held to a differential equation (PINN), and an inner
step that is differentiated (MAML), all by `create_graph=True`.

As it is for one process; under torchrun it trains by a plan of all its ranks: `torchrun --nproc-per-node 4 penalties.py`.
"""

import os
import sys

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import shardwright

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(5)
recipe = os.environ.get("RECIPE")
curve = []

critic = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 1))
real = torch.randn(16, 12, generator=draws)
critic = shardwright.auto_parallelize(critic, (real,), "dp=-1", cluster="dgx-h100", recipe=recipe)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
for _ in range(3):
    fake, mix = torch.randn(16, 12, generator=draws), torch.rand(16, 1, generator=draws)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (slope,) = torch.autograd.grad(score, between, grad_outputs=torch.ones_like(score), create_graph=True, retain_graph=True)
    loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, dim=1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(loss.item())

field = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
walls = torch.rand(16, 2, generator=draws)
field = shardwright.auto_parallelize(field, (walls,), "dp=-1", cluster="dgx-h100", recipe=recipe)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
for _ in range(3):
    points = torch.rand(16, 2, generator=draws).requires_grad_()
    (first,) = torch.autograd.grad(field(points).sum(), points, create_graph=True)
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
    loss = (first[:, 1] - 0.1 * second).square().mean() + (field(walls) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(loss.item())

learner = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1))
xs, ys = torch.randn(2, 10, 4, generator=draws), torch.randn(2, 10, 1, generator=draws)
learner = shardwright.auto_parallelize(learner, (xs[0],), "dp=-1", cluster="dgx-h100", recipe=recipe)
optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
for _ in range(3):
    total = 0
    for x, y in zip(xs, ys, strict=True):
        params = dict(learner.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(functional_call(learner, params, (x,)), y)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            params = {name: p - 0.1 * grad for (name, p), grad in zip(params.items(), grads, strict=True)}
        total = total + F.mse_loss(functional_call(learner, params, (x,)), y)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    curve += [total.item(), sum(p.grad.norm().item() for p in learner.parameters())]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
