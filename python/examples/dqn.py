"""Deep Q-learning: a replay memory, a target network that is loaded from the online one, softly updated, actions of single states."""

import copy
import os
import random
import sys

import torch
from torch import nn

import shardwright


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
        self.value, self.advantage = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, state):
        h = self.body(state)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


random.seed(5)
torch.manual_seed(6)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(7)
policy = Dueling()
target = copy.deepcopy(policy)
policy = shardwright.auto_parallelize(policy, (torch.zeros(16, 6),), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
target = shardwright.auto_parallelize(target, (torch.zeros(16, 6),), "dp=-1", cluster="dgx-h100", folder="target")
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
criterion = nn.SmoothL1Loss()
memory, curve = [], []
state = torch.randn(1, 6, generator=draws)
for step in range(40):
    if random.random() < 0.3:
        action = torch.tensor([[random.randrange(3)]])
    else:
        with torch.no_grad():
            action = policy(state).max(1).indices.view(1, 1)
    following = torch.randn(1, 6, generator=draws)
    memory.append((state, action, following, (state[:, action.item()] > 0).double()))
    state = following
    if len(memory) < 16 or step % 3:
        continue
    states, actions, followings, rewards = (torch.cat(column) for column in zip(*random.sample(memory, 16)))
    values = policy(states).gather(1, actions)
    with torch.no_grad():
        expected = rewards + 0.9 * target(followings).max(1).values
    loss = criterion(values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    states_of = target.state_dict()
    for name, value in policy.state_dict().items():
        states_of[name] = value * 0.1 + states_of[name] * 0.9
    target.load_state_dict(states_of)
    curve.append(loss.item())
curve += policy(torch.ones(2, 6)).flatten().tolist()
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
