"""A variational autoencoder in the shape of PyTorch's example: noise drawn in forward, two methods, samples of the decoder."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(20, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 20)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
data = torch.rand(24, 20, generator=torch.Generator().manual_seed(2))
model = VAE()
model = shardwright.auto_parallelize(model, (data[:8],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
curve = []
torch.manual_seed(3)
for _ in range(3):
    model.train()
    for k in range(0, 24, 8):
        optimizer.zero_grad()
        recon, mu, logvar = model(data[k : k + 8])
        loss = loss_function(recon, data[k : k + 8], mu, logvar)
        loss.backward()
        optimizer.step()
        curve.append(loss.item() / 8)
    model.eval()
    with torch.no_grad():
        curve.append(loss_function(data[:5] * 0 + model(data[:5])[0], data[:5], *model(data[:5])[1:]).item())
        curve.append(model.decode(torch.randn(3, 4)).mean().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
