"""Shardwright for PyTorch: capture a model, plan its parallelism, train by the plan.

captured = shardwright.capture(model, (x,), loss=loss, targets=(y,))
plan = shardwright.plan(captured, mesh="dp=2,tp=2", cluster="dgx-h100")
model = shardwright.parallelize(model, plan, plan.init_device_mesh("cuda"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .command import plan, plan_stages
from .comparison import Comparison, compare
from .errors import CaptureError, CommandError, MismatchError, ShardwrightError, require_torch
from .folder import Plan, load
from .staged import StagedPlan, load_stages

if TYPE_CHECKING:
    from .accumulating import reduce_gradients
    from .auto import auto_parallelize
    from .constraints import constrain
    from .distribute import parallelize
    from .graph_capture import Captured, capture
    from .inputs import gather_outputs, shard_inputs
    from .joint import compile_joint, joint_graph
    from .module import ParallelModule, whole_weights
    from .pipeline import Pipeline, pipeline
    from .precision import MixedPrecision

__version__ = "0.2.0"
__all__ = [
    "CaptureError",
    "Captured",
    "CommandError",
    "Comparison",
    "MismatchError",
    "MixedPrecision",
    "ParallelModule",
    "Pipeline",
    "Plan",
    "ShardwrightError",
    "StagedPlan",
    "auto_parallelize",
    "capture",
    "compare",
    "compile_joint",
    "constrain",
    "gather_outputs",
    "joint_graph",
    "load",
    "load_stages",
    "parallelize",
    "pipeline",
    "plan",
    "plan_stages",
    "reduce_gradients",
    "shard_inputs",
    "whole_weights",
]

_NEEDS_TORCH = {
    "Captured": "graph_capture",
    "MixedPrecision": "precision",
    "ParallelModule": "module",
    "Pipeline": "pipeline",
    "auto_parallelize": "auto",
    "capture": "graph_capture",
    "compile_joint": "joint",
    "constrain": "constraints",
    "gather_outputs": "inputs",
    "joint_graph": "joint",
    "parallelize": "distribute",
    "pipeline": "pipeline",
    "reduce_gradients": "accumulating",
    "shard_inputs": "inputs",
    "whole_weights": "module",
}


def __getattr__(name: str) -> Any:
    """Imports the parts that need PyTorch on first use: planning does not need it."""
    module = _NEEDS_TORCH.get(name)
    if module is None:
        raise AttributeError(f"module 'shardwright' has no attribute '{name}'")
    require_torch()
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value
