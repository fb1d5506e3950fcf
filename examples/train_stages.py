"""Trains a small GPT in pipeline stages, each on a mesh of its own: `torchrun --nproc-per-node 4 train_stages.py`.

`python train_stages.py --single` is the same run in one process, with the same losses. `--schedule zbv` (zero bubble) or another one that
PyTorch has lays the same stages out otherwise.
"""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn import functional as F

import shardwright

ROWS, MICROBATCHES, TOKENS, WORDS, WIDTH = 4, 4, 16, 64, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 4, -1).transpose(1, 2).chunk(3, dim=-1)
        mixed = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(x)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        # The last stage has the weight of the first one, too.
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def batch(step, rows=ROWS * MICROBATCHES):
    draws = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, WORDS, (rows, TOKENS + 1), generator=draws)
    return tokens[:, :-1], tokens[:, 1:]


def single(model, show):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        loss = loss_of(model(batch(step)[0]), batch(step)[1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        show(loss.item())
    with torch.no_grad():
        show(loss_of(model(batch(9)[0]), batch(9)[1]).item())


def in_stages(model, show, schedule):
    dist.init_process_group()
    if dist.get_rank() == 0:
        tokens, labels = batch(0, ROWS)
        captured = shardwright.capture(model, (tokens,), loss=loss_of, targets=(labels,))
        shardwright.plan_stages(captured, mesh="pp=2,dp=2", cluster="dgx-h100", microbatches=MICROBATCHES, virtual=2, quiet=True)
    dist.barrier()
    pipeline = shardwright.pipeline(model, "stages", "pp=2,dp=2", schedule=schedule)
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=1e-2)
    for step in range(5):
        loss = pipeline.step(*batch(step))
        pipeline.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        show(loss.item())
    show(pipeline.evaluate(*batch(9)).item())
    # Of the whole model: any other number of stages reads it, and none.
    dcp.save({"model": pipeline.state_dict()}, checkpoint_id="checkpoint")
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--single", action="store_true")
    arguments.add_argument("--schedule", help="default that of the plan")
    given = arguments.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    if given.single:
        single(Gpt(), print)
    else:
        in_stages(Gpt(), lambda value: print(value) if dist.get_rank() == 0 else None, given.schedule)
