"""Translation by an encoder and a decoder, in the shape of PyTorch's tutorial: masks, label smoothing, greedy generation."""

import math
import os
import sys

import torch
from torch import nn

import shardwright

PAD, BOS = 0, 1


class Seq2Seq(nn.Module):
    def __init__(self, vocab=20, width=16):
        super().__init__()
        self.width = width
        self.transformer = nn.Transformer(width, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.generator, self.src_emb, self.tgt_emb = nn.Linear(width, vocab), nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.register_buffer("pos", torch.randn(12, width) * 0.1)

    def place(self, tokens, table):
        return table(tokens) * math.sqrt(self.width) + self.pos[: tokens.shape[1]]

    def forward(self, src, tgt, tgt_mask, src_padding):
        src, tgt = self.place(src, self.src_emb), self.place(tgt, self.tgt_emb)
        padding = {"src_key_padding_mask": src_padding, "memory_key_padding_mask": src_padding}
        return self.generator(self.transformer(src, tgt, tgt_mask=tgt_mask, **padding))


def mask_of(size):
    return torch.triu(torch.ones(size, size, dtype=torch.bool), 1)


@torch.no_grad()
def greedy(model, src, length):
    ys = torch.full((src.shape[0], 1), BOS)
    for _ in range(length):
        out = model(src, ys, mask_of(ys.shape[1]), src == PAD)
        ys = torch.cat([ys, out[:, -1].argmax(-1, keepdim=True)], 1)
    return ys


torch.manual_seed(14)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(15)
data = []
for _ in range(4):
    src = torch.randint(2, 20, (8, 6), generator=draws)
    src[::3, 4:] = PAD
    data.append((src, torch.cat([torch.full((8, 1), BOS), src.flip(1)], 1)))
model = Seq2Seq()
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
src, tgt = data[0]
example = (src, tgt[:, :-1], mask_of(6), src == PAD)
model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9)
curve = []
for _ in range(2):
    model.train()
    for src, tgt in data:
        logits = model(src, tgt[:, :-1], mask_of(6), src == PAD)
        optimizer.zero_grad()
        loss = loss_fn(logits.reshape(-1, 20), tgt[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
model.eval()
curve += greedy(model, data[0][0][:3], 4).flatten().tolist()
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
