"""Statistics of the modules of a transformer as PyTorch's own checkpointing tools measure them, and what PyTorch decides.

Writes test/fixtures/torch/per-module.json: `python scripts/engines/module_statistics.py > FILE`. Needs torch 2.13 (CPU is
enough), pwlf, pulp and expecttest. The model, its sizes and the three budgets are those of PyTorch's
test/distributed/_tools/test_sac_ilp.py; that test wants a CUDA device, this script does not: tensors are fake, dropout and
attention are asked for as the kernels that CUDA would take (one byte a dropout mask, memory-efficient attention), and the
roofline is given the data sheet of an A100 (19.5 TFLOP/s float32, 2039 GB/s). Sizes are not rounded to 512 bytes as CUDA's
allocator does, which is the difference to the published peak.
"""

import copy
import json
import math
import sys
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._runtime_estimation as runtime_estimation
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.ilp_utils import aggregate_stats, get_peak_memory_runtime_baseline, parse_module_info
from torch.distributed._tools.mem_tracker import MemTracker, _ModState
from torch.distributed._tools.runtime_estimator import RuntimeEstimator
from torch.distributed._tools.sac_estimator import SACEstimator
from torch.distributed._tools.sac_ilp import sac_milp
from torch.testing._internal.distributed._tensor.common_dtensor import ModelArgs, Transformer

MODE = "operator-level-cost-model"
BUDGETS_GIB = [2.4, 1.6, 0.8]
WORLD_SIZE = 4


def dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def attention(q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False) -> torch.Tensor:
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, dropout_p, is_causal)[0]


def collect() -> tuple[Any, SACEstimator]:
    args = ModelArgs(n_layers=4, n_heads=12, vocab_size=8192, max_seq_len=1024, dim=768, dropout_p=0.1)
    model = Transformer(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    tokens = torch.randint(0, args.vocab_size, (8, args.max_seq_len))

    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for step in range(2):  # the first makes the optimizer state
            output = model(tokens)
            output.sum().backward()
            if step == 1:
                last = tracker.get_tracker_snapshot("current")
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                tracker.reset_mod_stats()
    for stats in tracker.memory_tracking.values():
        # Modules whose inputs need no gradient never see the end of their backward pass.
        if _ModState.POST_BW not in stats.snapshots:
            stats.snapshots[_ModState.POST_BW] = [copy.deepcopy(last)]

    runtime = RuntimeEstimator()
    with runtime(estimate_mode_type=MODE):
        model(tokens).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    estimator = SACEstimator()
    with estimator(estimate_mode_type=MODE):
        loss = model(tokens).sum()
    loss.backward()
    return aggregate_stats(model, tracker, runtime, estimator, torch.device("cpu")), estimator


def region(stats: Any) -> list[dict[str, Any]]:
    """Operators of a module: milliseconds, bytes, and what binds them."""
    inplace = dict(stats.inplace_ops)
    return [
        {
            "name": name,
            "ms": stats.runtimes[i],
            "bytes": stats.memory[i],
            **({"view": True} if i in stats.view_like_ops else {}),
            **({"random": True} if i in stats.rand_ops else {}),
            **({"inPlaceOf": inplace[i]} if i in inplace else {}),
        }
        for i, name in enumerate(stats.func_names)
    ]


def main() -> None:
    runtime_estimation.get_device_tflops = lambda dtype: 19.5 if dtype == torch.float32 else 312.0
    runtime_estimation.get_gpu_dram_gbps = lambda: 2039.0
    F.dropout = dropout
    F.scaled_dot_product_attention = attention
    out = sys.stdout
    sys.stdout = sys.stderr  # the estimators print
    with FakeTensorMode():
        torch.cuda.is_available = lambda: True  # the roofline refuses to work without
        info, estimator = collect()
    graph = parse_module_info(info)
    peak, compute = get_peak_memory_runtime_baseline(graph)
    answers = []
    for budget in BUDGETS_GIB:
        chosen, recompute, bound = sac_milp(graph, memory_budget=budget, world_size=WORLD_SIZE)
        answers.append({"budgetGiB": budget, "ratios": chosen, "recomputeMs": recompute, "peakBoundBytes": bound})
    modules = []
    for node in sorted(graph.nodes, key=lambda n: n["pos_fw_post_order"]):
        name = node["fqn"]
        module = {
            "name": name,
            "parameterBytes": node["param_per_module"],
            "gradientTotalBytes": node["grad_total"],
            "savedBytes": node["act_fw_per_module"],
            "aliveBytes": node["act_total"],
            "activationGradientBytes": node["act_grad_per_module"],
        }
        if not node["is_leaf"]:
            fit = estimator.sac_mod_tradeoff_stats[name]
            module["ops"] = region(estimator.sac_mod_stats[name])
            module["sac"] = {
                "bytes": fit.sac_memory,
                "ms": fit.sac_runtime,
                "curve": [[x, y] for x, y in fit.tradeoff_curve.items()],
                "slopes": fit.slopes,
                "intercepts": fit.intercepts,
                "breaks": fit.fit_breaks,
            }
        modules.append(module)
    record = {
        "source": f"scripts/engines/module_statistics.py, torch {torch.__version__}, 4-layer transformer of test_sac_ilp.py",
        "worldSize": WORLD_SIZE,
        "baseline": {"peakBytes": peak, "computeMs": compute},
        "answers": answers,
        "modules": modules,
    }
    assert all(math.isfinite(m["savedBytes"]) for m in modules)
    json.dump(record, out, indent=None, separators=(",", ":"))
    out.write("\n")


if __name__ == "__main__":
    main()
