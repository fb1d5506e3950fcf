"""Two steps of torchtitan's debug Llama under an exported `torchtitan_config.py`: four processes on gloo, beside one process.

argv: the folder with the file. stdout: one JSON object with the losses of both and `gradient`, the largest relative difference of a gradient of the first
step, of its norm.

torchtitan 0.3.0 is written for GPUs. What is its own here: configuration, model, `parallelize_llama`, loss, `forward_backward_step` of
its Trainer, gradient clipping and optimizer. Its default `spmd_backend` is not tried: FSDP of PyTorch 2.13 takes no parameters that are plain
tensors with types, as it asks. What is not its own: its Trainer's constructor (it selects a CUDA device), its data sets, and FlexAttention, whose
backward pass has no CPU kernel; its scaled dot product attention stands in, as in its own tests. Triton and the loaders of data are imported there but
not called.
"""

import dataclasses
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import logging
import os
import pathlib
import socket
import sys
import types

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import distribute_tensor

STEPS = 2
BATCH, TOKENS = 4, 32


class Absent(types.ModuleType):
    """A package that torchtitan imports and nothing here calls."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *a, **k: None, "__call__": lambda self, x=None, *a, **k: x})


class Stands:
    NAMES = ("triton", "torchdata", "datasets", "torch.utils.tensorboard")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.NAMES or name in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def torchtitan_on_cpu():
    # PyTorch asks for Triton once, and must not take what stands in for it.
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.compile_fx")
    sys.meta_path.insert(0, Stands())
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", torch.cpu


def exported(folder):
    spec = importlib.util.spec_from_file_location("exported", pathlib.Path(folder) / "torchtitan_config.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trainer_of(parallelism, world):
    """What the constructor of torchtitan's Trainer makes, without a CUDA device."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config import CompileConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.utils import get_spmd_context, set_spmd_backend
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3 import model_registry
    from torchtitan.trainer import Trainer

    dims = ParallelDims.from_config(parallelism, world)
    dims.build_mesh()
    set_spmd_backend(parallelism.spmd_backend)
    training = TrainingConfig(
        local_batch_size=BATCH // (dims.dp_replicate * dims.dp_shard),
        seq_len=TOKENS,
        mixed_precision_param="float32",
        disable_cuda_graphs=True,
    )
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    spec.model.update_from_config(config=types.SimpleNamespace(parallelism=parallelism, training=training))
    with torch.device("meta"):
        model = spec.model.build()
    model = spec.parallelize_fn(
        model,
        parallel_dims=dims,
        training=training,
        parallelism=parallelism,
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    model.train()
    trainer = object.__new__(Trainer)
    trainer.model_parts, trainer.model_config = [model], spec.model
    trainer.parallel_dims = dims
    trainer.loss_fn = CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size).build(
        compile_config=CompileConfig(enable=False)
    )
    trainer.train_context = get_spmd_context(parallel_dims=dims)
    trainer.fwd_bwd_fn = trainer._forward_backward_body
    trainer.config = types.SimpleNamespace(parallelism=parallelism, training=training)
    trainer.device, trainer.ntokens_seen = torch.device("cpu"), 0
    trainer.optimizers = default_adamw(lr=8e-4).build(model_parts=[model])
    return trainer


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def trained(parallelism, world, state):
    """The parameters that it starts from (`state`, or those of the seed), the losses, and the gradients of the first step."""
    from torchtitan.distributed import utils as dist_utils

    trainer = trainer_of(parallelism, world)
    (model,) = trainer.model_parts
    for name, parameter in model.named_parameters() if state is not None else ():
        own = parameter.data
        if hasattr(own, "placements"):
            own._local_tensor.copy_(distribute_tensor(state[name], own.device_mesh, own.placements)._local_tensor)
        else:
            own.copy_(state[name])
    start = {name: whole(parameter.detach()).clone() for name, parameter in model.named_parameters()}
    dims = trainer.parallel_dims
    replicas = dims.dp_replicate * dims.dp_shard
    place = dims.get_mesh("batch").get_local_rank() if dims.dp_enabled else 0
    drawn = torch.Generator().manual_seed(1)
    losses, gradients = [], {}
    for step in range(STEPS):
        tokens = torch.randint(0, trainer.model_config.vocab_size, (BATCH, TOKENS + 1), generator=drawn).chunk(replicas)[place]
        trainer.optimizers.zero_grad()
        loss = trainer.forward_backward_step(
            input_dict={"input": tokens[:, :-1].contiguous()},
            labels=tokens[:, 1:].contiguous(),
            global_valid_tokens=torch.tensor(BATCH * TOKENS),
        )
        if step == 0:
            gradients = {name: whole(parameter.grad).clone() for name, parameter in model.named_parameters()}
        dist_utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
        trainer.optimizers.step()
        loss = whole(loss.detach()).clone()
        if replicas > 1:
            dist.all_reduce(loss, group=dims.get_mesh("batch").get_group())
        losses.append(loss.item())
    return start, losses, gradients


def work(rank, port, folder):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", LOCAL_WORLD_SIZE="4", MASTER_ADDR="localhost", MASTER_PORT=port
    )
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    from torchtitan.config import ParallelismConfig

    start = pathlib.Path(folder) / "start.pt"
    if rank == 0:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        torch.manual_seed(0)
        alone = ParallelismConfig(data_parallel_shard_degree=1, spmd_backend="partial_dtensor")
        torch.save(trained(alone, 1, None), start)
        dist.destroy_process_group()
    dist.init_process_group("gloo")
    dist.barrier()
    state, losses, wanted = torch.load(start)
    planned = dataclasses.replace(exported(folder).parallelism(), spmd_backend="partial_dtensor")
    _, own, gradients = trained(planned, 4, state)
    worst = max(((gradients[name] - wanted[name]).norm() / wanted[name].norm()).item() for name in wanted)
    if rank == 0:
        version = importlib.metadata.version("torchtitan")
        answer = {"version": version, "losses": losses, "own": own, "gradient": worst, "gradients": len(wanted)}
        (pathlib.Path(folder) / "answer.json").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(0)


def main():
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = str(server.getsockname()[1])
    # Forked, so that both packages are imported once; nothing was computed yet.
    torchtitan_on_cpu()
    importlib.import_module("torchtitan.trainer")
    importlib.import_module("torchtitan.models.llama3")
    mp.start_processes(work, (port, sys.argv[1]), nprocs=4, start_method="fork")
    print((pathlib.Path(sys.argv[1]) / "answer.json").read_text())


if __name__ == "__main__":
    main()
