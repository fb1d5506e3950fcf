"""A character model in the shape of nanoGPT's train.py: training, evaluation, a smaller last batch, generation, resuming.

As it is for one process; under torchrun it trains by a plan of all its ranks: `torchrun --nproc-per-node 4 nanogpt.py`.
"""

import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.attn(self.ln_1(x)).split(c, dim=2))
        y = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        y = F.dropout(y.masked_fill(~mask, float("-inf")).softmax(-1), self.dropout, self.training) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=40, block_size=12, layers=2, heads=4, width=32, dropout=0.1):
        super().__init__()
        self.block_size = block_size
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self, lr):
        decayed = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=lr)

    @torch.no_grad()
    def generate(self, idx, count, top_k=5):
        for _ in range(count):
            logits, _ = self(idx[:, -self.block_size :])
            logits = logits[:, -1, :]
            v, _ = torch.topk(logits, top_k)
            logits[logits < v[:, [-1]]] = -float("inf")
            idx = torch.cat((idx, torch.multinomial(logits.softmax(-1), num_samples=1)), dim=1)
        return idx


torch.manual_seed(1337)
torch.set_default_dtype(torch.float64)
data = torch.randint(0, 40, (600,)).cumsum(0) % 40
draws = torch.Generator().manual_seed(5)


def get_batch(size):
    ix = torch.randint(len(data) - 12, (size,), generator=draws)
    return torch.stack([data[i : i + 12] for i in ix]), torch.stack([data[i + 1 : i + 13] for i in ix])


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [model(*get_batch(5))[1].item() for _ in range(3)]
    model.train()
    return sum(losses) / len(losses)


def train(steps):
    for _ in range(steps):
        for x, y in (get_batch(8), get_batch(8), get_batch(3)):
            _, loss = model(x, y)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curve.append(loss.item())


curve = []
example = get_batch(8)
model = GPT()
model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
optimizer = model.configure_optimizers(1e-2)
curve.append(estimate_loss())
train(10)
saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
before = {name: value.clone() for name, value in saved["model"].items()}
train(3)
model.load_state_dict(before)
curve.append(estimate_loss())
model.eval()
text = model.generate(data[None, :3], 14)
print(*(f"{value:.9f}" for value in curve), *text[0].tolist(), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
