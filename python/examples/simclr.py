"""Contrastive learning: two views through one encoder, similarities within the batch, LARS-like scaling, a frozen probe."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright

torch.manual_seed(8)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(9)
data, labels = torch.randn(32, 12, generator=draws), torch.randint(0, 3, (32,), generator=draws)
encoder = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
encoder = shardwright.auto_parallelize(encoder, (data[:16],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
curve = []
for _ in range(3):
    for k in range(0, 32, 16):
        x = data[k : k + 16]
        one, two = (encoder(x + 0.1 * torch.randn(x.shape, generator=draws)) for _ in range(2))
        z = F.normalize(torch.cat([one, two]), dim=1)
        similar = (z @ z.T / 0.5).masked_fill(torch.eye(32, dtype=torch.bool), float("-inf"))
        loss = F.cross_entropy(similar, torch.arange(32).roll(16))
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in encoder.parameters():
                if p.ndim > 1:
                    p.grad *= 0.02 * p.norm() / (p.grad.norm() + 1e-9)
        optimizer.step()
        curve.append(loss.item())
encoder.eval()
for p in encoder.parameters():
    p.requires_grad = False
probe = nn.Linear(16, 3)
optimizer = torch.optim.LBFGS(probe.parameters(), lr=0.5, max_iter=4)


def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(probe(encoder(data)), labels)
    loss.backward()
    return loss


for _ in range(4):
    curve.append(optimizer.step(closure).item())
curve.append((probe(encoder(data)).argmax(1) == labels).double().mean().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
