"""Lightning with parallel modules: whole weights and optimizer states in checkpoints, its own samplers, accumulation and clipping.

from shardwright.integrations.lightning import Trainer

class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = shardwright.auto_parallelize(Net(), example, "dp=-1", cluster="dgx-h100", inputs="local")

Trainer(devices=4).fit(Lit(), loader)

The samplers of Lightning give every rank its own rows, so that `inputs="local"` is what fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch.distributed.tensor import DTensor

from ..errors import MismatchError
from ..inputs import gather_outputs
from ..loading import as_planned, placed_like
from ..module import ParallelModule


class Strategy(DDPStrategy):
    """As of DDP, for Lightning modules that hold parallel modules, which reduce their gradients themselves."""

    def setup(self, trainer: Any) -> None:
        """As of Lightning, without the wrapper of DDP and its broadcast of weights.

        Raises:
            MismatchError: for a trained parameter outside of the parallel modules, whose gradients nobody would reduce.
        """
        if not self._parallel():
            super().setup(trainer)
            return
        assert self.accelerator is not None and self.lightning_module is not None and self.model is not None
        for name, parameter in self.lightning_module.named_parameters():
            if parameter.requires_grad and not isinstance(parameter, DTensor):
                raise MismatchError(
                    "E_MODEL",
                    "it is outside of the parallel module, and its gradient is not that of all ranks",
                    place=name,
                    hint="take over one module that holds all that is trained, or freeze it.",
                )
        self.accelerator.setup(trainer)
        self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def block_backward_sync(self) -> Any:
        """Backward passes inside reduce no gradients."""
        return self._without_reductions() if self._parallel() else super().block_backward_sync()

    @contextmanager
    def _without_reductions(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self._parallel():
                stack.enter_context(module.no_sync())
            yield

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Whole weights; all ranks call this together."""
        return gather_outputs(dict(super().lightning_module_state_dict()))

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """As of Lightning, from whole weights into the plan's placements."""
        assert self.lightning_module is not None
        states = as_planned(self.lightning_module, checkpoint["state_dict"])
        super().load_model_state_dict({**checkpoint, "state_dict": states}, strict)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Whole states; all ranks call this together."""
        return gather_outputs(super().optimizer_state(optimizer))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """As of Lightning; states that have the size of their parameter are placed as it is."""
        super().load_optimizer_state_dict(checkpoint)
        for optimizer in self.optimizers:
            for parameter, states in optimizer.state.items():
                if not isinstance(parameter, DTensor):
                    continue
                for name, value in states.items():
                    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                        states[name] = placed_like(parameter, value)

    def _parallel(self) -> list[ParallelModule]:
        assert self.lightning_module is not None
        return [module for module in self.lightning_module.modules() if isinstance(module, ParallelModule)]


class Trainer(lightning.Trainer):
    """Lightning's own, with the `Strategy` for parallel modules where none is given."""

    def __init__(self, *, strategy: Any = "auto", **options: Any) -> None:
        super().__init__(strategy=Strategy() if strategy == "auto" else strategy, **options)
