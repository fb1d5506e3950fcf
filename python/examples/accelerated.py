"""A classifier in the shape of accelerate's examples: accumulation, clipping, metrics of a smaller last batch, a saved and loaded state."""

import os
import sys

import torch
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shardwright
from shardwright.integrations.accelerate import Accelerator

torch.manual_seed(21)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(22)
images, labels = torch.randn(44, 20, generator=draws), torch.randint(0, 4, (44,), generator=draws)
order = torch.Generator().manual_seed(23)
train_data = DataLoader(TensorDataset(images[:32], labels[:32]), batch_size=8, shuffle=True, drop_last=True, generator=order)
eval_data = DataLoader(TensorDataset(images[32:], labels[32:]), batch_size=8)
accelerator = Accelerator(gradient_accumulation_steps=2, dataloader_config=DataLoaderConfiguration(split_batches=True), cpu=True)
model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
example = (images[: 8 // accelerator.num_processes],)
model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", inputs="local", recipe=os.environ.get("RECIPE"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
model, optimizer, train_data, eval_data, schedule = accelerator.prepare(model, optimizer, train_data, eval_data, schedule)

curve = []


def train():
    model.train()
    for x, y in train_data:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        curve.append(accelerator.gather(loss.detach()).mean().item())


def evaluate():
    model.eval()
    right = 0
    for x, y in eval_data:
        with torch.no_grad():
            found = model(x).argmax(-1)
        found, y = accelerator.gather_for_metrics((found, y))
        right += (found == y).sum().item()
    curve.append(right / 12)


train()
evaluate()
accelerator.save_state("state")
train()
accelerator.load_state("state")
evaluate()
train()
evaluate()
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
