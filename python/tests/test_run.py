"""Four processes on gloo run the plans of `plans.py`: everything that needs a process group, in one start."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from models import Dropping, Mlp, Views, encoder, loss_of, mlp, refused
from plans import PLANS
from processes import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.utils._python_dispatch import TorchDispatchMode

import shardwright

pytestmark = pytest.mark.usefixtures("plans")

FULL = bool(os.environ.get("SHARDWRIGHT_FULL"))
ADAMW: tuple[dict[str, Any], ...] = ({"foreach": True}, {"foreach": False}, {"fused": True})


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def ready(name: str, **options: Any) -> tuple[Any, Mlp, torch.Tensor, torch.Tensor]:
    model, x, y = mlp()
    reference = copy.deepcopy(model)
    plan = shardwright.load(PLANS / name)
    return shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"), **options), reference, x, y


def step(module: Any, optimizer: Any, *batch: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = module(*batch) if not isinstance(module, Mlp) else loss_of(module, *batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    optimizer.step()
    return float(whole(norm))


def adamw(module: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-2, **options)


def trained(facts: dict[str, Any]) -> None:
    for options in ADAMW:
        module, reference, x, y = ready("mlp-2x2-megatron")
        own, other = adamw(module, **options), adamw(reference, **options)
        norms = [(step(module, own, x, y), step(reference, other, x, y)) for _ in range(20)]
        facts[f"norms {options}"] = all(abs(a - b) < 1e-9 for a, b in norms)
        pairs = zip(module.parameters(), reference.parameters(), strict=True)
        facts[f"20 steps {options}"] = all(same(whole(a.detach()), b.detach()) for a, b in pairs)


def checkpointed(facts: dict[str, Any], folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    module, reference, x, y = ready("mlp-2x2-tensor")
    own, other = adamw(module), adamw(reference)
    for _ in range(3):
        step(module, own, x, y), step(reference, other, x, y)
    weights, states = get_state_dict(module, own)
    facts["names"] = sorted(weights) == sorted(reference.state_dict())
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
    for name in ("mlp-4-fsdp", "mlp-2x2-fsdp-all"):
        again, fresh, _, _ = ready(name)
        for p in again.parameters():
            torch.nn.init.zeros_(p.data._local_tensor)
        next_own, next_other = adamw(again), adamw(fresh)
        fresh.load_state_dict(reference.state_dict())
        next_other.load_state_dict(copy.deepcopy(other.state_dict()))
        weights, states = get_state_dict(again, next_own)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
        set_state_dict(again, next_own, model_state_dict=weights, optim_state_dict=states)
        for _ in range(3):
            step(again, next_own, x, y), step(fresh, next_other, x, y)
        pairs = zip(again.parameters(), fresh.parameters(), strict=True)
        facts[f"goes on under {name}"] = all(same(whole(a.detach()), b.detach()) for a, b in pairs)


def from_meta(facts: dict[str, Any]) -> None:
    plan = shardwright.load(PLANS / "mlp-2x2-fsdp-all")
    with torch.device("meta"):
        model = Mlp().double()
    module = shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"))
    facts["meta"] = all(p.is_meta for p in module.parameters())
    module.to_empty(device="cpu")
    facts["parts only"] = [tuple(p.to_local().shape) for p in module.parameters()] == [(8, 16), (8,), (2, 32), (2,)]
    reference, x, y = mlp()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(module, reference.state_dict(), options=StateDictOptions(full_state_dict=True))
    facts["from meta"] = same(whole(module(x, y)).detach(), loss_of(reference, x, y).detach())


def inputs(facts: dict[str, Any]) -> None:
    module, reference, x, y = ready("mlp-2x2-megatron")
    args, kwargs = shardwright.shard_inputs(module, x, y)
    facts["sharded"] = [type(a).__name__ for a in args] == ["DTensor", "DTensor"] and kwargs == {}
    loss = shardwright.gather_outputs(module(*args))
    facts["sharded inputs"] = same(loss.detach(), loss_of(reference, x, y).detach())
    with torch.no_grad():
        facts["no_grad"] = same(whole(module(x, y)), loss_of(reference, x, y).detach())


def refusals(facts: dict[str, Any]) -> None:
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    plan = shardwright.load(PLANS / "mlp-2x2-tensor")
    mesh = plan.init_device_mesh("cpu")
    other = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 8))
    facts["other model"] = refused(lambda: shardwright.parallelize(other, plan, mesh))
    facts["other dtype"] = refused(lambda: shardwright.parallelize(mlp()[0].float(), plan, mesh))
    flat = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    facts["other mesh"] = refused(lambda: shardwright.parallelize(mlp()[0], plan, flat))
    turned = DeviceMesh("cpu", torch.tensor([[3, 2], [1, 0]]), mesh_dim_names=("dp", "tp"))
    facts["other order"] = refused(lambda: shardwright.parallelize(mlp()[0], plan, turned))
    apart = mlp()[0]
    with torch.no_grad():
        apart.fc2.bias[3] += dist.get_rank() == 2
    facts["other weights"] = refused(lambda: shardwright.parallelize(apart, plan, mesh))
    module, _, x, y = ready("mlp-2x2-tensor")
    facts["other batch"] = refused(lambda: module(x[:4], y[:4]))
    reference = mlp()[0]
    facts["without targets"] = same(shardwright.gather_outputs(module(x)).detach(), reference(x).detach())
    facts["evaluation"] = refused(lambda: module.eval()(x, y))
    loss = module.train()(x, y)
    loss.backward(retain_graph=True)
    loss.backward(), loss_of(reference, x, y).backward()
    pairs = zip(module.parameters(), reference.parameters(), strict=True)
    facts["backward twice"] = all(same(whole(a.grad), 2 * b.grad) for a, b in pairs)
    try:
        loss.backward()
    except RuntimeError as error:
        facts["third backward"] = str(error)
    facts["again"] = refused(lambda: shardwright.parallelize(module, plan, mesh))


def dropping(facts: dict[str, Any], rank: int) -> None:
    plan = shardwright.load(PLANS / "dropout-2x2")
    _, x, y = mlp()
    torch.manual_seed(7)
    model = Dropping().double()
    reference = copy.deepcopy(model)
    module = shardwright.parallelize(model, plan, plan.init_device_mesh("cpu"))
    torch.manual_seed(rank // 2)
    facts["seeds"] = refused(lambda: module(x, y))
    again = shardwright.parallelize(copy.deepcopy(reference), plan, plan.init_device_mesh("cpu"))
    torch.manual_seed(3)
    if rank == 3:
        torch.rand(1)
    facts["drawn apart"] = refused(lambda: again(x, y))
    facts["dropped"] = drops_alike(again, reference, x, y)
    model, x, y = encoder(0.25)
    reference = copy.deepcopy(model)
    plan = shardwright.load(PLANS / "encoder-dropped")
    facts["dropped in attention"] = drops_alike(shardwright.parallelize(model, plan, plan.init_device_mesh("cpu")), reference, x, y)


def drops_alike(module: torch.nn.Module, reference: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether loss and gradients with dropout are those of one process."""
    torch.manual_seed(5)
    loss = module(x, y)
    loss.backward()
    torch.manual_seed(5)
    expected = loss_of(reference, x, y)
    expected.backward()
    pairs = zip(module.parameters(), reference.parameters(), strict=True)
    return same(whole(loss).detach(), expected.detach()) and all(same(whole(a.grad), b.grad) for a, b in pairs)


def on_hosts(facts: dict[str, Any], rank: int) -> None:
    plan = shardwright.load(PLANS / "mlp-2x2-tensor")
    mesh = plan.init_device_mesh("cpu")

    def told(planned: int, host: int, **options: Any) -> str:
        priced = dataclasses.replace(plan, placements={**plan.placements, "devicesPerHost": planned})
        os.environ.update(LOCAL_WORLD_SIZE="2", GROUP_RANK=str(host))
        return refused(lambda: shardwright.parallelize(mlp()[0], priced, mesh, **options))

    facts["two hosts of two"] = told(2, rank // 2)
    facts["every other rank"] = told(2, rank % 2)
    facts["hosts too small"] = told(8, rank // 2)
    facts["hosts too large"] = told(2, 0)
    facts["hosts not asked"] = told(8, rank // 2, check_hosts=False)
    for name in ("LOCAL_WORLD_SIZE", "GROUP_RANK"):
        del os.environ[name]


def compiled(facts: dict[str, Any]) -> None:
    module, reference, x, y = ready("mlp-2x2-megatron", compile=True)
    loss, expected = module(x, y), loss_of(reference, x, y)
    loss.backward(), expected.backward()
    pairs = zip(module.parameters(), reference.parameters(), strict=True)
    facts["compiled"] = same(whole(loss).detach(), expected.detach()) and all(same(whole(a.grad), b.grad) for a, b in pairs)


def views(facts: dict[str, Any]) -> None:
    _, x, _ = mlp()
    torch.manual_seed(7)
    reference = Views().double()
    plan = shardwright.load(PLANS / "views")
    module = shardwright.parallelize(copy.deepcopy(reference), plan, plan.init_device_mesh("cpu"))
    found, expected = [shardwright.gather_outputs(out) for out in module(x)], reference(x)
    facts["values of views"] = all(same(a.detach(), b.detach()) for a, b in zip(found, expected, strict=True))
    for outputs in (found, expected):
        sum((out * out * (k + 1)).sum() for k, out in enumerate(outputs) if out.requires_grad).backward()
    pairs = zip(module.parameters(), reference.parameters(), strict=True)
    facts["gradients of views"] = all(same(whole(a.grad), b.grad) for a, b in pairs)
    wanted = x.clone().requires_grad_()
    found = module(wanted)
    shardwright.gather_outputs(found[5]).sum().backward()
    expected_of = x.clone().requires_grad_()
    expected = reference(expected_of)
    facts["views that want gradients"] = [a.requires_grad for a in found] == [b.requires_grad for b in expected]
    expected[5].sum().backward()
    facts["input with gradient"] = same(wanted.grad, expected_of.grad)
    with torch.no_grad():
        facts["input without gradient"] = same(shardwright.gather_outputs(module(x.clone().requires_grad_())[0]), expected[0].detach())


class UnderWay(TorchDispatchMode):
    """The most functional collectives that were called and not waited for, at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[int] = set()
        self.most = self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        namespace, name = func._schema.name.split("::")
        if namespace == "_c10d_functional" and name == "wait_tensor":
            self.open.discard(args[0].data_ptr())
        elif namespace == "_c10d_functional":
            self.calls += 1
            self.open.add((out[0] if isinstance(out, list) else out).data_ptr())
            self.most = max(self.most, len(self.open))
        return out


def one_at_a_time(facts: dict[str, Any]) -> None:
    for name in ("fsdp-all", "tensor"):
        module, _, x, y = ready(f"mlp-2x2-{name}")
        with UnderWay() as seen:
            module(x, y).backward()
        facts[f"one at a time of {name}"] = seen.most == 1 and seen.calls > 1


def kinds_of(graph: Any) -> list[str]:
    names = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter", "all_to_all_single": "all_to_all"}
    called = [
        str(node.target).split(".")[1].removesuffix("_coalesced") for node in graph.nodes if str(node.target).startswith("_c10d_functional")
    ]
    return [names.get(name, name) for name in called if name != "wait_tensor"]


def joint(facts: dict[str, Any]) -> None:
    from torch._functorch.aot_autograd import boxed_nop_preserve_node_meta as nop
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    # Inductor compiles one of them; the others are partitioned, and run as they are.
    plain: dict[str, Any] = {} if FULL else {"fw_compiler": nop, "bw_compiler": nop}
    cut = {**plain, "partition_fn": min_cut_rematerialization_partition}
    for name, options in (("tensor", {}), ("megatron", plain), ("fsdp-all", cut)):
        module, reference, x, y = ready(f"mlp-2x2-{name}", compile="joint" if name == "tensor" else False)
        found: list[str] = []
        names: list[str] = []

        def look(of: Any, found: list[str] = found, names: list[str] = names) -> None:
            found.extend(kinds_of(of.graph_module.graph))
            names.extend([*of.params_spec, *of.buffers_spec])

        if name != "tensor":
            shardwright.compile_joint(module, passes=look, **options)
            planned = [row["kind"] for row in shardwright.load(PLANS / f"mlp-2x2-{name}").collectives]
            facts[f"collectives of {name}"] = found == planned and len(planned) > 0
            facts[f"names of {name}"] = names == [key for key, _ in reference.named_parameters()]
        own, other = adamw(module), adamw(reference)
        norms = [(step(module, own, x, y), step(reference, other, x, y)) for _ in range(3)]
        pairs = zip(module.parameters(), reference.parameters(), strict=True)
        trained = all(same(whole(a.detach()), b.detach()) for a, b in pairs)
        facts[f"joint {name}"] = trained and all(abs(a - b) < 1e-9 for a, b in norms)


class Mapped(torch.nn.Module):
    """Two layers in `local_map`, over rows of dp and columns of tp, between plain ones; the scores of a rank are shared by tp."""

    def __init__(self, mesh: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        for name in ("a", "w1", "w2"):
            setattr(self, name, torch.nn.Parameter(torch.randn(8, 8, dtype=torch.float64)))
        rows, whole = Shard(0), Replicate()
        self.placed = {"a": (whole, whole), "w1": (whole, Shard(1)), "w2": (whole, Shard(0))}

        def layers(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = fc.reduce_scatter_tensor(torch.tanh(x @ w1) @ w2, "sum", 0, (mesh, 1))
            return y.sin(), fc.all_reduce(y.detach().amax(), "max", (mesh, 1)).unsqueeze(0)

        self.layers = local_map(
            layers,
            out_placements=([rows, rows], [rows, whole]),
            in_placements=((rows, whole), self.placed["w1"], self.placed["w2"]),
            in_grad_placements=((rows, Partial()), (Partial(), Shard(1)), (Partial(), rows)),
            device_mesh=mesh,
            redistribute_inputs=True,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, most = self.layers(x @ self.a, self.w1, self.w2)
        return y.square().sum() * most.sum()


def mapped(facts: dict[str, Any], place: str) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    eager, planned = Mapped(mesh), Mapped(mesh)
    for name, placements in eager.placed.items():
        value = distribute_tensor(getattr(eager, name).detach(), mesh, placements)
        setattr(eager, name, torch.nn.Parameter(value))
    loss = eager(distribute_tensor(x, mesh, [Replicate(), Replicate()]))
    loss.backward()
    model = shardwright.auto_parallelize(planned, (x,), mesh, cluster="dgx-h100", folder=f"{place}/mapped", quiet=True)
    own = model(x)
    own.backward()
    facts["loss of local_map"] = same(whole(own.detach()), whole(loss.detach()))
    facts["gradients of local_map"] = all(same(whole(getattr(model, name).grad), whole(getattr(eager, name).grad)) for name in eager.placed)


def work(rank: int, place: str) -> None:
    torch.set_num_threads(1)
    os.environ.pop("LOCAL_WORLD_SIZE", None)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=4, timeout=timedelta(seconds=120))
    facts: dict[str, Any] = {}
    trained(facts)
    checkpointed(facts, f"{place}/checkpoint")
    from_meta(facts)
    inputs(facts)
    refusals(facts)
    on_hosts(facts, rank)
    dropping(facts, rank)
    one_at_a_time(facts)
    views(facts)
    compiled(facts)
    joint(facts)
    mapped(facts, place)
    if rank == 0:
        Path(f"{place}/facts.json").write_text(json.dumps(facts))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def facts(plans: None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        run_ranks(work, (place,), 4)
        return json.loads(Path(f"{place}/facts.json").read_text())


@pytest.mark.parametrize(
    "fact",
    [
        *(f"{what} {options}" for options in ADAMW for what in ("norms", "20 steps")),
        "names",
        "goes on under mlp-4-fsdp",
        "goes on under mlp-2x2-fsdp-all",
        "meta",
        "parts only",
        "from meta",
        "sharded",
        "sharded inputs",
        "no_grad",
        "without targets",
        "backward twice",
        "compiled",
        "dropped",
        "dropped in attention",
        *(f"{what} of views" for what in ("values", "gradients")),
        "views that want gradients",
        "input with gradient",
        "input without gradient",
        *(f"one at a time of {name}" for name in ("fsdp-all", "tensor")),
        *(f"joint {name}" for name in ("tensor", "megatron", "fsdp-all")),
        *(f"{what} of local_map" for what in ("loss", "gradients")),
        *(f"{what} of {name}" for what in ("collectives", "names") for name in ("megatron", "fsdp-all")),
    ],
)
def test_equal_to_one_process(facts: dict[str, Any], fact: str) -> None:
    assert facts[fact] is True


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("other model", ["E_MODEL", "fc1.weight is missing", "0.weight is not in the plan"]),
        ("other dtype", ["E_MODEL", "fc1.weight is float32[32, 16], planned is float64[32, 16]"]),
        ("other weights", ["E_MODEL rank 2 holds other values of fc2.bias than rank 0", "torch.manual_seed(0)"]),
        ("other mesh", ["E_MESH", "(dp=2, tp=2)", "(dp=4)"]),
        ("other order", ["E_MESH", "ranks [", "ascend"]),
        ("other batch", ["E_INPUT", "input x", "float64[4, 16], planned is float64[8, 16]"]),
        ("evaluation", ["E_MODE", "captured in training mode and is in evaluation mode"]),
        ("third backward", ["backward through the graph a second time"]),
        ("seeds", ["native_dropout", "E_SEED rank 0 draws from seed 0, rank 2 from seed 1"]),
        ("drawn apart", ["E_SEED rank 3 has drawn other numbers from seed 3 than rank 0"]),
        ("again", ["E_MODEL", "parallel already"]),
        ("two hosts of two", ["nothing was refused"]),
        ("hosts not asked", ["nothing was refused"]),
        (
            "every other rank",
            ["E_HOSTS", "the plan has ranks [0, 1]; [2, 3] on one host each", "host 0: ranks [0, 2]; host 1: ranks [1, 3]"],
        ),
        ("hosts too small", ["E_HOSTS", "the plan has ranks [0, 1, 2, 3] on one host", "host 1: ranks [2, 3]", "--nproc-per-node=4"]),
        ("hosts too large", ["E_HOSTS", "the plan has ranks [0, 1]; [2, 3]", "host 0: ranks [0, 1, 2, 3]"]),
    ],
)
def test_refusals_have_both_values(facts: dict[str, Any], fact: str, words: list[str]) -> None:
    for word in words:
        assert word in facts[fact]


DIES = """
import os, sys
from datetime import timedelta
import torch.distributed as dist
sys.path.insert(0, os.environ["TESTS"])
from test_run import ready
dist.init_process_group("gloo")
del os.environ["LOCAL_WORLD_SIZE"]
module, _, x, y = ready("mlp-2-fsdp", timeout=timedelta(seconds=600))
if dist.get_rank() == 1:
    raise RuntimeError("it lost its disk")
module(x, y).backward()
"""


def test_a_process_that_dies_ends_all_with_its_message() -> None:
    """The other waits for its collectives for ten minutes, unless the launcher ends it."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "dies.py"
        script.write_text(DIES)
        launch = [sys.executable, "-m", "torch.distributed.run", "--log-dir", place, "--standalone", "--nproc-per-node", "2", str(script)]
        env = {**os.environ, "TESTS": str(Path(__file__).parent), "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        run = subprocess.run(launch, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode != 0
    assert "[rank1]: RuntimeError: it lost its disk" in run.stderr
