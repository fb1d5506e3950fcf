"""Group relative policy optimisation: groups of sampled completions, a frozen reference, a clipped ratio, a penalty, a mask."""

import copy
import os
import sys

import torch
from torch import nn

import shardwright


class Lm(nn.Module):
    def __init__(self, vocab=20, width=24):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, width), nn.Embedding(16, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, input_ids):
        length = input_ids.shape[1]
        causal = torch.full((length, length), float("-inf")).triu(1)
        return self.head(self.block(self.embed(input_ids) + self.pos(torch.arange(length)), src_mask=causal))


def log_probs(model, ids):
    return model(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def rollout(model, ids, count):
    model.eval()
    for _ in range(count):
        ids = torch.cat([ids, torch.multinomial((model(ids)[:, -1] / 0.9).softmax(-1), 1, generator=draws)], 1)
    model.train()
    return ids


torch.manual_seed(12)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(13)
policy = Lm()
reference = copy.deepcopy(policy).requires_grad_(False).eval()
example = (torch.zeros(8, 8, dtype=torch.long),)
policy = shardwright.auto_parallelize(policy, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
reference = shardwright.auto_parallelize(reference, example, "dp=-1", cluster="dgx-h100", folder="reference")
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
mask = torch.ones(8, 8)
mask[:, :3] = 0
curve = []
for _ in range(3):
    ids = rollout(policy, torch.randint(0, 20, (2, 4), generator=draws).repeat_interleave(4, 0), 5)
    rewards = (ids[:, 4:] % 3 == 0).double().mean(1).view(2, 4)
    gain = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    with torch.no_grad():
        old, base = log_probs(policy, ids), log_probs(reference, ids)
    for _ in range(2):
        new = log_probs(policy, ids)
        ratio = (new - old).exp()
        surrogate = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        penalty = (base - new).exp() - (base - new) - 1
        loss = (((surrogate + 0.04 * penalty) * mask).sum(1) / mask.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        curve += [loss.item(), nn.utils.clip_grad_norm_(policy.parameters(), 0.1).item()]
        optimizer.step()
    curve += ids.double().mean(1).tolist()
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
