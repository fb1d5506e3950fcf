"""Proximal policy optimisation: an actor and a critic on one trunk, a clipped surrogate, entropy, several epochs of minibatches."""

import os
import sys

import torch
from torch import nn
from torch.distributions import Categorical

import shardwright


class Head(nn.Module):
    def __init__(self, trunk, sizes):
        super().__init__()
        self.trunk, self.out = trunk, nn.Linear(32, sizes)

    def forward(self, state):
        return self.out(self.trunk(state))


torch.manual_seed(10)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(11)
trunk = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
actor, critic = Head(trunk, 4), Head(trunk, 1)
example = (torch.zeros(16, 6),)
actor = shardwright.auto_parallelize(actor, example, "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
critic = shardwright.auto_parallelize(critic, example, "dp=-1", cluster="dgx-h100", folder="critic")
params = list(dict.fromkeys([*actor.parameters(), *critic.parameters()]))
optimizer = torch.optim.Adam(params, lr=3e-3, eps=1e-5)
curve = [len(params)]
for _ in range(3):
    states = torch.randn(32, 6, generator=draws)
    with torch.no_grad():
        policy = Categorical(logits=actor(states))
        actions = torch.multinomial(policy.probs, 1, generator=draws).squeeze(1)
        old, values = policy.log_prob(actions), critic(states).flatten()
    returns = states.sum(1).tanh() + 0.1 * actions
    advantages = returns - values
    for _ in range(2):
        for part in torch.randperm(32, generator=draws).split(16):
            policy = Categorical(logits=actor(states[part]))
            gain = (advantages[part] - advantages[part].mean()) / (advantages[part].std() + 1e-8)
            ratio = (policy.log_prob(actions[part]) - old[part]).exp()
            surrogate = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            value_loss = 0.5 * (critic(states[part]).view(-1) - returns[part]).pow(2).mean()
            loss = surrogate - 0.01 * policy.entropy().mean() + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(params, 0.5)
            optimizer.step()
            curve += [loss.item(), norm.item()]
curve += [value.square().sum().item() for model in (actor, critic) for value in model.state_dict().values()]
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
