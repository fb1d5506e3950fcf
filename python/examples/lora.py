"""LoRA fine-tuning: frozen weights, low-rank adapters, a state dict of adapters alone, merged weights."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a.T @ self.lora_b.T) * self.scale

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scale * self.lora_b @ self.lora_a


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.head = nn.Linear(32, 40)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
model = Net()
for p in model.parameters():
    p.requires_grad_(False)
for layer in model.layers:
    layer[1], layer[3] = LoraLinear(layer[1]), LoraLinear(layer[3])
draws = torch.Generator().manual_seed(2)
batches = [torch.randint(0, 40, (8, 7), generator=draws) for _ in range(4)]
model = shardwright.auto_parallelize(model, (batches[0][:, :-1],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
curve = []
for _ in range(2):
    for ids in batches:
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        curve.append(loss.item())
adapters = {name: value for name, value in model.state_dict().items() if "lora_" in name}
curve.append(len(adapters))
model.eval()
with torch.no_grad():
    curve.append(model(batches[0][:5, :-1]).square().mean().item())
    for layer in model.layers:
        layer[1].merge(), layer[3].merge()
        for one in (layer[1], layer[3]):
            one.lora_b.zero_()
    curve.append(model(batches[0][:5, :-1]).square().mean().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
