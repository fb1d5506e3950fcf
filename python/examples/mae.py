"""A masked autoencoder: patches shuffled by draws in forward, gathered and put back, a loss of the masked ones, warm-up by hand."""

import os
import sys

import torch
from torch import nn

import shardwright


class MAE(nn.Module):
    def __init__(self, dim=16, patches=12, ratio=0.75):
        super().__init__()
        self.embed, self.place = nn.Linear(6, dim), nn.Parameter(torch.randn(1, patches, dim) * 0.02)
        self.encoder = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.mask_token, self.head, self.kept = nn.Parameter(torch.zeros(1, 1, dim)), nn.Linear(dim, 6), int(patches * (1 - ratio))

    def forward(self, x):
        rows, patches, _ = x.shape
        order = torch.rand(rows, patches, device=x.device).argsort(1)
        back = order.argsort(1)
        h = self.embed(x) + self.place
        h = self.encoder(h.gather(1, order[:, : self.kept, None].expand(-1, -1, h.shape[-1])))
        h = torch.cat([h, self.mask_token.expand(rows, patches - self.kept, -1)], 1)
        out = self.head(self.decoder(h.gather(1, back[..., None].expand(-1, -1, h.shape[-1])) + self.place))
        mask = (back >= self.kept).to(x.dtype)
        return ((out - x).square().mean(-1) * mask).sum() / mask.sum(), out


torch.set_default_dtype(torch.float64)
torch.manual_seed(75)
batches = torch.randn(12, 8, 12, 6)
model = MAE()
model = shardwright.auto_parallelize(model, (batches[0],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
torch.manual_seed(76)
curve = []
for step, x in enumerate(batches):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * min(1, (step + 1) / 4)
    loss, out = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve += [loss.item(), out.std().item()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
