"""`accelerate` with parallel modules: checkpoints hold whole weights and sharded optimizer states.

from shardwright.integrations.accelerate import Accelerator

model = shardwright.auto_parallelize(model, example, "dp=-1", cluster="dgx-h100", inputs="local")
model, optimizer, loader = Accelerator().prepare(model, optimizer, loader)

The loaders of accelerate give every rank its own rows, so that `inputs="local"` is what fits.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import accelerate
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from ..inputs import gather_outputs
from ..module import ParallelModule, whole_weights

_FOLDER = "shardwright_optimizers"


class Accelerator(accelerate.Accelerator):
    """accelerate's own, which wraps no parallel module, with checkpoints of these."""

    def prepare_model(self, model: Any, device_placement: bool | None = None, evaluation_mode: bool = False) -> Any:
        """As of accelerate; a parallel module gets its autocast alone."""
        if isinstance(model, ParallelModule):
            return super().prepare_model(model, device_placement=False, evaluation_mode=True)
        return super().prepare_model(model, device_placement, evaluation_mode)

    def get_state_dict(self, model: Any, unwrap: bool = True) -> Any:
        """Whole weights of a parallel module; all ranks call this together."""
        states = super().get_state_dict(model, unwrap)
        return gather_outputs(dict(states)) if isinstance(model, ParallelModule) else states

    def save_state(self, output_dir: str | None = None, safe_serialization: bool = True, **save_model_func_kwargs: Any) -> Any:
        """As of accelerate; states of optimizers of parallel modules are written by `torch.distributed.checkpoint`."""
        own = self._take_optimizers()
        try:
            folder = super().save_state(output_dir, safe_serialization, **save_model_func_kwargs)
        finally:
            self._optimizers = own["all"]
        for k, (model, optimizer) in enumerate(own["parallel"]):
            dcp.save(get_optimizer_state_dict(model, optimizer), checkpoint_id=Path(folder) / f"{_FOLDER}_{k}")
        return folder

    def load_state(self, input_dir: str | None = None, load_kwargs: Any = None, **load_model_func_kwargs: Any) -> None:
        """As of accelerate, on any number of ranks and under any plan."""
        own = self._take_optimizers()
        try:
            with ExitStack() as stack:
                # safetensors asks for the storages of parameters.
                for model in self._models:
                    if isinstance(model, ParallelModule):
                        stack.enter_context(whole_weights(model))
                super().load_state(input_dir, load_kwargs, **load_model_func_kwargs)
        finally:
            self._optimizers = own["all"]
        for k, (model, optimizer) in enumerate(own["parallel"]):
            states = get_optimizer_state_dict(model, optimizer)
            dcp.load(states, checkpoint_id=Path(os.path.expanduser(str(input_dir))) / f"{_FOLDER}_{k}")
            set_optimizer_state_dict(model, optimizer, states)

    def _take_optimizers(self) -> dict[str, Any]:
        """All optimizers, and those of parallel modules with their module, which accelerate does not see meanwhile."""
        owners = {id(p): model for model in self._models if isinstance(model, ParallelModule) for p in model.parameters()}
        found: dict[str, Any] = {"all": self._optimizers, "parallel": []}
        rest = []
        for optimizer in self._optimizers:
            model = owners.get(id(optimizer.param_groups[0]["params"][0]))
            if model is None:
                rest.append(optimizer)
            else:
                found["parallel"].append((model, optimizer.optimizer))
        self._optimizers = rest
        return found
