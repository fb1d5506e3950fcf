"""A denoising diffusion model: a small UNet, noise of random strength, an exponential moving average, sampling."""

import copy
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Res(nn.Module):
    def __init__(self, inner, outer, times):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(times, outer)
        self.norm2, self.conv2 = nn.GroupNorm(4, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down, self.pool = Res(width, 16, 16), nn.Conv2d(16, 16, 3, 2, 1)
        self.middle, self.up = Res(16, 16, 16), Res(32, width, 16)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        freqs = torch.exp(-math.log(1000) * torch.arange(self.width // 2, device=x.device) / (self.width // 2))
        angles = t[:, None] * freqs[None]
        emb = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        h = self.down(self.first(x), emb)
        m = F.interpolate(self.middle(self.pool(h), emb), scale_factor=2, mode="nearest")
        return self.last(self.up(torch.cat([h, m], 1), emb))


torch.manual_seed(11)
torch.set_default_dtype(torch.float64)
steps = 20
betas = torch.linspace(1e-3, 0.2, steps)
alphas = (1 - betas).cumprod(0)
data = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(12))
model = UNet()
model = shardwright.auto_parallelize(model, (data[:8], torch.rand(8)), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
curve = []
torch.manual_seed(13)
for _ in range(4):
    for k in range(0, 24, 8):
        x = data[k : k + 8]
        t = torch.randint(0, steps, (len(x),))
        noise = torch.randn_like(x)
        a = alphas[t].view(-1, 1, 1, 1)
        predicted = model(a.sqrt() * x + (1 - a).sqrt() * noise, t.to(x.dtype))
        loss = F.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, e in zip(model.parameters(), ema.parameters()):
                e.lerp_(p, 0.1)
        curve.append(loss.item())
with torch.no_grad():
    x = torch.randn(4, 1, 8, 8)
    for t in reversed(range(0, steps, 5)):
        noise = ema(x, torch.full((4,), float(t)))
        x = (x - betas[t] / (1 - alphas[t]).sqrt() * noise) / (1 - betas[t]).sqrt() + betas[t].sqrt() * torch.randn_like(x)
curve += [x.mean().item(), x.square().mean().item()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
