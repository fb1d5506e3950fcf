"""`Trainer` of Hugging Face with parallel modules: losses of the whole batch, whole weights in checkpoints, sharded optimizer states.

from shardwright.integrations.transformers import Trainer

model = shardwright.auto_parallelize(model, (), "dp=-1", cluster="dgx-h100", example_kwargs=batch, inputs="local")
Trainer(model=model, args=args, train_dataset=data).train()

The trainer gives every rank its own rows, so that `inputs="local"` is what fits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from ..module import ParallelModule
from .accelerate import Accelerator

_FOLDER = "shardwright_optimizer"
_SCHEDULE = "scheduler.pt"


class Trainer(transformers.Trainer):
    """The trainer of transformers, for parallel modules and others."""

    def create_accelerator_and_postprocess(self) -> None:
        """As of transformers, with the `Accelerator` for parallel modules."""
        module: Any = sys.modules[transformers.Trainer.__module__]
        before, module.Accelerator = module.Accelerator, Accelerator
        try:
            super().create_accelerator_and_postprocess()
        finally:
            module.Accelerator = before

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """As of transformers; a loss that a parallel module returns is that of all ranks already, and is not multiplied by their number."""
        own = self.compute_loss_func is None and self.label_smoother is None
        if not (isinstance(model, ParallelModule) and own):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        before, self.args.average_tokens_across_devices = self.args.average_tokens_across_devices, False
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.args.average_tokens_across_devices = before

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """As of transformers; all ranks gather the weights that one of them writes."""
        if isinstance(self.model, ParallelModule) and not self.args.should_save:
            self.model.save_pretrained(output_dir or self.args.output_dir, is_main_process=False)
        else:
            super()._save(output_dir, state_dict)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not isinstance(self.model, ParallelModule):
            super()._save_optimizer_and_scheduler(output_dir)
            return
        dcp.save(get_optimizer_state_dict(self.model, self.optimizer.optimizer), checkpoint_id=Path(output_dir) / _FOLDER)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / _SCHEDULE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not isinstance(self.model, ParallelModule) or checkpoint is None or not (Path(checkpoint) / _FOLDER).exists():
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        states = get_optimizer_state_dict(self.model, self.optimizer.optimizer)
        dcp.load(states, checkpoint_id=Path(checkpoint) / _FOLDER)
        set_optimizer_state_dict(self.model, self.optimizer.optimizer, states)
        self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / _SCHEDULE, weights_only=True))
