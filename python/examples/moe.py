"""A mixture of experts: top-2 routing, a loss that balances experts, batched experts."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Moe(nn.Module):
    def __init__(self, width=16, inner=32, experts=4):
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(width, experts, bias=False)
        self.w1, self.w2 = nn.Parameter(torch.randn(experts, width, inner) * 0.1), nn.Parameter(torch.randn(experts, inner, width) * 0.1)

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        weights, chosen = probs.topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros_like(probs).scatter(-1, chosen, weights)
        inner = F.silu(torch.einsum("btd,edi->ebti", x, self.w1))
        out = torch.einsum("bte,ebtd->btd", gates, torch.einsum("ebti,eid->ebtd", inner, self.w2))
        share = F.one_hot(chosen, self.experts).to(probs.dtype).sum(2).mean((0, 1))
        return out, self.experts * (share * probs.mean((0, 1))).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norms = nn.Embedding(30, 16), nn.ModuleList(nn.RMSNorm(16) for _ in range(2))
        self.moes, self.head = nn.ModuleList(Moe() for _ in range(2)), nn.Linear(16, 30)

    def forward(self, ids, labels=None):
        x, balance = self.embed(ids), 0.0
        for norm, moe in zip(self.norms, self.moes):
            out, loss = moe(norm(x))
            x, balance = x + out, balance + loss
        logits = self.head(x)
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss + 0.01 * balance, "balance": balance, "logits": logits}


torch.manual_seed(9)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(10)
data = [torch.randint(0, 30, (8, 7), generator=draws) for _ in range(4)]
model = Net()
example = {"ids": data[0][:, :-1], "labels": data[0][:, 1:]}
model = shardwright.auto_parallelize(model, (), "dp=-1", cluster="dgx-h100", example_kwargs=example, recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
curve = []
for _ in range(2):
    for ids in data:
        out = model(ids=ids[:, :-1], labels=ids[:, 1:])
        out["loss"].backward()
        curve += [out["loss"].item(), out["balance"].item(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
model.eval()
with torch.no_grad():
    curve.append(model(ids=data[0][:3, :-1])["logits"].argmax(-1).sum().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
