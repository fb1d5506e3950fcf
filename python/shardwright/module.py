"""An `nn.Module` that calls the plan's program; its parameters are DTensors."""

from __future__ import annotations

from typing import Any

from torch import nn

from .agreement import check_seeds
from .errors import MismatchError
from .graph_capture import rebuild_tree
from .run import STATES, Run


class ParallelModule(nn.Module):
    """The model under its plan; names of parameters, buffers and submodules are the model's own."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.__dict__["_modules"] = run.model._modules
        self.__dict__["_parameters"] = run.model._parameters
        self.__dict__["_buffers"] = run.model._buffers
        # One name of ours: any other could be one of the model's.
        self.__dict__["shardwright"] = run
        self.training = run.model.training

    def train(self, mode: bool = True) -> ParallelModule:
        """As of every module; the program itself is that of the mode in which the model was captured."""
        run_of(self).model.train(mode)
        self.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the forward program.

        Inputs are those of the captured model, then those of its loss: DTensors in the plan's placements (`shard_inputs`), or
        whole tensors of which each rank takes its part, so that all ranks must pass the same.

        Returns:
            What the captured model returns: plain tensors where every rank has the whole, else DTensors.
        """
        run = run_of(self)
        record = run.plan.capture
        if record is not None and record["training"] != self.training:
            mode = {True: "training", False: "evaluation"}
            raise MismatchError(
                "E_MODE",
                f"the model was captured in {mode[record['training']]} mode and is in {mode[self.training]} mode",
                hint="call .train() or .eval(), or capture the model in the other mode too.",
            )
        if not run.has_drawn:
            check_seeds(run)
        inputs = iter([run.local_input(entry, value) for entry, value in run.named_inputs(args, kwargs)])
        primals = [run.state(entry) if entry["role"] in STATES else next(inputs) for entry in run.primals]
        leaves = run.call(*primals)
        if record is None:
            return leaves[0] if len(leaves) == 1 else leaves
        return rebuild_tree(record["outputs"]["tree"], leaves)


def run_of(module: ParallelModule) -> Run:
    """What a parallel module runs."""
    return module.__dict__["shardwright"]
