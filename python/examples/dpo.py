"""Direct preference optimisation: a policy, and a frozen reference that is a copy of it."""

import copy
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(30, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 30)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def log_probs(model, ids, mask):
    logits = model(ids[:, :-1]).log_softmax(-1)
    return (logits.gather(2, ids[:, 1:, None])[..., 0] * mask[:, 1:]).sum(-1)


torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
policy = Lm()
reference = copy.deepcopy(policy).eval()
for p in reference.parameters():
    p.requires_grad = False
draws = torch.Generator().manual_seed(4)
data = [(torch.randint(0, 30, (8, 6), generator=draws), torch.randint(0, 30, (8, 6), generator=draws)) for _ in range(4)]
example = (data[0][0][:, :-1],)
policy = shardwright.auto_parallelize(policy, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
reference = shardwright.auto_parallelize(reference, example, "dp=-1", cluster="dgx-h100", folder="reference")
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
curve = []
for _ in range(2):
    for chosen, rejected in data:
        mask = (chosen > 2).double()
        won, lost = log_probs(policy, chosen, mask), log_probs(policy, rejected, mask)
        with torch.no_grad():
            base_won, base_lost = log_probs(reference, chosen, mask), log_probs(reference, rejected, mask)
        margin = (won - lost) - (base_won - base_lost)
        loss = -F.logsigmoid(0.5 * margin).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curve += [loss.item(), (margin > 0).double().mean().item()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
