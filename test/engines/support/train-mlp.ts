/** `examples/train_mlp.py` beside one process. */

import { execFileSync } from 'node:child_process';

/** What `examples/train_mlp.py` does in one process, in plain PyTorch. */
const SINGLE = `
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
`;

/** The losses that a run of either printed. */
export const losses = (text: string): number[] =>
  [...text.matchAll(/^\d (\S+)$/gm)].map(([, loss]) => Number(loss));

/** The five losses in one process of this Python. */
export const lossesAlone = (python: string): number[] =>
  losses(execFileSync(python, ['-c', SINGLE], { encoding: 'utf8' }));
