"""A vector-quantised autoencoder and a graph network: codes and their averages as buffers, rows added up by index, pooled by scatter."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(10, 4), nn.Linear(4, 10)
        self.register_buffer("codes", torch.randn(16, 4))
        self.register_buffer("size", torch.ones(16))
        self.register_buffer("average", self.codes.clone())

    def forward(self, x):
        z = self.encode(x)
        index = torch.cdist(z, self.codes).argmin(1)
        q = F.embedding(index, self.codes)
        if self.training:
            with torch.no_grad():
                one = F.one_hot(index, 16).to(z.dtype)
                self.size.mul_(0.9).add_(one.sum(0), alpha=0.1)
                self.average.mul_(0.9).add_(one.T @ z, alpha=0.1)
                self.codes.copy_(self.average / (self.size + 1e-5)[:, None])
        return self.decode(z + (q - z).detach()), F.mse_loss(z, q.detach()), index


class Graphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.near, self.head = nn.Linear(8, 16), nn.Linear(8, 16, bias=False), nn.Linear(16, 3)

    def forward(self, x, edges, graph):
        source, target = edges
        received = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.zeros(x.shape[0], device=x.device).index_add_(0, target, torch.ones(target.shape[0], device=x.device))
        h = F.relu(self.own(x) + self.near(received / count.clamp(min=1)[:, None]))
        pooled = torch.zeros(4, 16, device=x.device).scatter_reduce(0, graph[:, None].expand_as(h), h, "mean", include_self=False)
        return self.head(pooled)


torch.set_default_dtype(torch.float64)
torch.manual_seed(77)
batches = torch.randn(10, 8, 10)
model = Codes()
model = shardwright.auto_parallelize(model, (batches[0],), "dp=-1", cluster="dgx-h100", folder="codes", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
curve = []
for x in batches:
    again, commit, index = model(x)
    loss = F.mse_loss(again, x) + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve += [loss.item(), model.codes.sum().item(), index.sum().item()]
nodes, edges, graph = torch.randn(10, 24, 8), torch.randint(0, 24, (10, 2, 40)), torch.arange(24) // 6
labels = torch.randint(0, 3, (10, 4))
graphs = Graphs()
example = (nodes[0], edges[0], graph)
graphs = shardwright.auto_parallelize(graphs, example, "dp=-1", cluster="dgx-h100", folder="graphs", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.Rprop(graphs.parameters(), lr=1e-3)
for step in range(10):
    loss = F.cross_entropy(graphs(nodes[step], edges[step], graph), labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.append(loss.item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
