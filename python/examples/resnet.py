"""A residual network in the shape of ImageNet scripts: mixup, warm-up, an average of weights, validation, resuming from a checkpoint."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import shardwright


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.down = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)) if stride > 1 else None

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        out += x if self.down is None else self.down(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.layers = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.fc(self.pool(self.layers(F.relu(self.bn(self.conv(x))))).flatten(1))


def mixup(x, y, alpha=0.2):
    lam = torch.distributions.Beta(alpha, alpha).sample().item()
    other = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[other], y, y[other], lam


def validate(model):
    model.eval()
    right, total = 0, 0.0
    with torch.no_grad():
        for k in range(0, 24, 10):
            out = model(images[k : k + 10])
            total += F.cross_entropy(out, labels[k : k + 10], reduction="sum").item()
            _, top = out.topk(2, 1)
            right += top.eq(labels[k : k + 10, None]).sum().item()
    model.train()
    return [total / 24, right / 24]


torch.manual_seed(16)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(17)
images, labels = torch.randn(24, 3, 8, 8, generator=draws), torch.randint(0, 5, (24,), generator=draws)
model = ResNet()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
model = shardwright.auto_parallelize(model, (images[:8],), "dp=-1", cluster="dgx-h100", recipe=os.environ.get("RECIPE"))
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)], [3])
curve = []
torch.manual_seed(18)
for epoch in range(3):
    for k in range(0, 24, 8):
        x, a, b, lam = mixup(images[k : k + 8], labels[k : k + 8])
        out = model(x)
        loss = lam * criterion(out, a) + (1 - lam) * criterion(out, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        curve.append(loss.item())
    curve += validate(model) + validate(average)
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
