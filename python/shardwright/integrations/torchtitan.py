"""torchtitan with plans: a model spec whose parallelize function plans the model and takes it over.

spec = shardwright.integrations.torchtitan.planned(spec, cluster="dgx-h100")

The trainer then builds the model on the meta device, calls that function, `to_empty` and `init_weights`, and trains. Ranks along tensor
parallelism have the same rows, others their own.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.protocols.model_spec import ModelSpec

from ..auto import auto_parallelize
from ..errors import MismatchError
from ..module import ParallelModule, programs_of
from ..precision import MixedPrecision


def planned(spec: ModelSpec, *, cluster: str, folder: str | os.PathLike[str] | None = None, **options: Any) -> ModelSpec:
    """A model spec whose parallelize function plans the model on torchtitan's mesh and takes it over.

    Degrees of data parallelism, replicated or not, are the mesh dim `dp`, that of tensor parallelism is `tp`; what is laid out how over
    them is the plan's. Activations are computed again where the plan's memory asks for it (`memory=`), and not by torchtitan.

    Args:
        spec: of torchtitan.
        cluster: as for `plan`.
        folder: where plan and program are written; default `plan` in torchtitan's dump folder.
        options: of `auto_parallelize`.
    """
    return dataclasses.replace(spec, parallelize_fn=partial(_parallelized, cluster=cluster, folder=folder, options=options))


def _parallelized(
    model: torch.nn.Module,
    *,
    parallel_dims: Any,
    training: Any,
    compile_config: Any,
    dump_folder: str,
    cluster: str,
    folder: str | os.PathLike[str] | None,
    options: dict[str, Any],
    **_: Any,
) -> ParallelModule:
    """As torchtitan's trainer calls it.

    Raises:
        MismatchError: for pipelines, context and expert parallelism, which a plan of one program does not take from the outside.
    """
    for degree in ("pp", "cp", "ep"):
        if getattr(parallel_dims, degree) > 1:
            raise MismatchError(
                "E_MESH",
                f"torchtitan's {degree} is {getattr(parallel_dims, degree)}",
                place="parallel_dims",
                hint="leave it 1: the plan lays sequences and experts out over dp and tp by itself.",
            )
    parts = parallel_dims.dp_replicate * parallel_dims.dp_shard
    tokens = torch.zeros(training.local_batch_size, training.seq_len, dtype=torch.int64)
    example: dict[str, Any] = {"example_kwargs": {}}
    if "positions" in inspect.signature(model.forward).parameters:
        example["example_kwargs"]["positions"] = torch.arange(training.seq_len).expand_as(tokens).contiguous()
    param = TORCH_DTYPE_MAP[training.mixed_precision_param]
    if param != TORCH_DTYPE_MAP[training.dtype]:
        example["mixed_precision"] = MixedPrecision(param_dtype=param, reduce_dtype=TORCH_DTYPE_MAP[training.mixed_precision_reduce])
    module = auto_parallelize(
        model,
        (tokens,),
        f"dp={parts},tp={parallel_dims.tp}" if parallel_dims.tp > 1 else f"dp={parts}",
        **{
            "cluster": cluster,
            "folder": Path(dump_folder) / "plan" if folder is None else folder,
            "inputs": ("dp",),
            "compile": compile_config.enable and "model" in compile_config.components,
            **example,
            **options,
        },
    )
    local = programs_of(module).local
    if local is not None:
        # Its losses are sums of parts over the tokens of all ranks, not means of the ranks.
        local.divisor = 1
    return module
