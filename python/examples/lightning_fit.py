"""A regression in the shape of Lightning's examples: accumulation, clipping, a schedule, validation, a checkpoint to go on from."""

import os
import sys

import torch
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shardwright
from shardwright.integrations.lightning import Trainer

torch.manual_seed(51)
torch.set_default_dtype(torch.float64)
draws = torch.Generator().manual_seed(52)
x, y = torch.randn(40, 12, generator=draws), torch.randn(40, 3, generator=draws)
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def rows(data):
    # Its own samplers shuffle; these give the rows in their order.
    return DataLoader(data, batch_size=8 // world, sampler=DistributedSampler(data, world, rank, shuffle=False))


train_data, val_data = rows(TensorDataset(x[:32], y[:32])), rows(TensorDataset(x[32:], y[32:]))
curve = []


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(53)
        net = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 3))
        example = (x[: 8 // world],)
        net = shardwright.auto_parallelize(net, example, "dp=-1", cluster="dgx-h100", inputs="local", recipe=os.environ.get("RECIPE"))
        self.net = net

    def training_step(self, batch, _):
        loss = F.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", F.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def on_train_epoch_end(self):
        curve.extend(float(self.trainer.callback_metrics[name]) for name in ("train_loss", "val_loss"))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


def trainer(epochs):
    return Trainer(
        accelerator="cpu", devices=world, max_epochs=epochs, accumulate_grad_batches=2, gradient_clip_val=0.5, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
    )  # fmt: skip


first = trainer(3)
first.fit(Regression(), train_data, val_data)
first.save_checkpoint("fit.ckpt")
saved = torch.load("fit.ckpt", weights_only=False)
curve += [float(value.norm()) for value in saved["state_dict"].values()]
curve += [float(state["exp_avg"].norm()) for state in saved["optimizer_states"][0]["state"].values()]
model = Regression()
trainer(6).fit(model, train_data, val_data, ckpt_path="fit.ckpt", weights_only=False)
curve.append(trainer(1).validate(model, val_data, verbose=False)[0]["val_loss"])
print(*(f"{value:.9f}" for value in curve), file=open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout)
