"""A Llama on packed rows: position ids that begin again with every document, a mask within documents, a smaller last batch."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.gate = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, cos, sin, mask):
        y = self.norm1(x)
        q, k, v = (of(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for of in (self.q, self.k, self.v))
        q, k = (z * cos + torch.cat([-z[..., z.shape[-1] // 2 :], z[..., : z.shape[-1] // 2]], -1) * sin for z in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocab=48, width=32, heads=4):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, width), nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(2))
        size = width // heads
        self.register_buffer("speeds", 1.0 / 10000 ** (torch.arange(0, size, 2).double() / size), persistent=False)

    def forward(self, ids, position_ids, document_ids, labels=None):
        turns = (position_ids[..., None] * self.speeds).repeat(1, 1, 2)[:, None]
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = ((document_ids[:, :, None] == document_ids[:, None]) & causal)[:, None]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, turns.cos(), turns.sin(), mask)
        logits = self.head(self.norm(x))
        return logits if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def packed(rows, length):
    columns = []
    for _ in range(rows):
        ids, positions, documents, labels = [], [], [], []
        while len(ids) < length:
            count = min(int(torch.randint(3, 9, (1,), generator=draws)), length - len(ids))
            text = torch.randint(0, 48, (count,), generator=draws).tolist()
            documents += [documents[-1] + 1 if documents else 0] * count
            ids, positions, labels = ids + text, positions + list(range(count)), labels + text[1:] + [-100]
        columns.append((ids, positions, documents, labels))
    return [torch.tensor(column) for column in zip(*columns)]


torch.manual_seed(14)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(15)
model = Llama()
example = packed(8, 16)
model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
curve = []
for rows in (8, 8, 8, 8, 8, 3):
    loss = model(*packed(rows, 16))
    loss.backward()
    curve += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()]
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    ids, positions, documents, labels = packed(4, 11)
    curve.append(model(ids, positions, documents, labels).item())
    curve.append(model(ids, position_ids=positions, document_ids=documents).square().mean().item())
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
