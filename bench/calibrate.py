"""Measures matmuls, attention, copies, launches and calls of known models on one GPU and prints a calibration for
`shardwright plan --calibration FILE`.

    python bench/calibrate.py > calibration.json

Needs PyTorch and a CUDA or ROCm device. Times are medians of CUDA events over repeated kernels after a warm-up, in one graph of
launches where the host would be slower than the device; buffers are rotated so that small shapes do not run from the cache of the
run before. Takes about a minute.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

SIZES = [128, 512, 1024, 2048, 4096, 8192, 16384]
COPY_BYTES = [2**k for k in range(12, 31, 2)]
ATTENTION = [(b, h, s, d) for b, h, d in ((4, 16, 64), (2, 32, 128)) for s in (1024, 2048, 4096, 8192)]
UNITS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}


def median_seconds(run, repeats: int, inner: int) -> float:
    """Median over `repeats` of the time of one call, each taken over `inner` calls in a row."""
    for _ in range(3):
        run(0)
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for i in range(inner):
            run(i)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / inner)
    return statistics.median(times)


def graph_seconds(run: Callable[[int], object], repeats: int, inner: int) -> float:
    """As `median_seconds`, launched as one graph: the device's time of a call, whatever the host needs for it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(3):
            run(i)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(inner):
            run(i)
    return median_seconds(lambda _: graph.replay(), repeats, 1) / inner


def inner_calls(flops: float) -> int:
    """Calls in a row: enough for about ten milliseconds on a fast device, never fewer than two."""
    return max(2, min(200, int(5e12 / max(flops, 1.0))))


def matmuls(dtype: torch.dtype, repeats: int) -> list:
    points = []
    shapes = [(m, k, n) for m in SIZES for k in (1024, 4096, 8192) for n in (1024, 4096, 16384)]
    for m, k, n in shapes:
        if 2 * m * k * n > 5e12:
            continue
        lefts = [torch.randn(m, k, device="cuda").to(dtype) for _ in range(3)]
        rights = [torch.randn(k, n, device="cuda").to(dtype) for _ in range(3)]
        out = torch.empty(m, n, device="cuda", dtype=dtype)
        seconds = graph_seconds(
            lambda i: torch.mm(lefts[i % 3], rights[i % 3], out=out), repeats, inner_calls(2.0 * m * k * n)
        )
        points.append({"m": m, "k": k, "n": n, "itemBytes": lefts[0].element_size(), "seconds": seconds})
        del lefts, rights, out
    return points


def attention(repeats: int) -> list:
    """Fused attention without a mask, so that every score is computed; the backward alone, its forward kept."""
    points = []
    for batch, heads, rows, channels in ATTENTION:
        shape = (batch, heads, rows, channels)
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        gradient = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        flops = 4.0 * batch * heads * rows * rows * channels

        def forward(_):
            with torch.no_grad():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v)

        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)

        def backward(_):
            torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

        for run, is_backward in ((forward, False), (backward, True)):
            seconds = median_seconds(run, repeats, inner_calls(flops * (2.5 if is_backward else 1)))
            points.append(
                {
                    "unit": "bf16",
                    "batch": batch,
                    "heads": heads,
                    "rows": rows,
                    "channels": channels,
                    "backward": is_backward,
                    "seconds": seconds,
                }
            )
        del q, k, v, gradient, out
    return points


def copies(repeats: int) -> list:
    points = []
    for size in COPY_BYTES:
        sources = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(3)]
        target = torch.empty_like(sources[0])
        seconds = graph_seconds(lambda i: target.copy_(sources[i % 3]), repeats, 20)
        points.append({"bytes": 2 * size, "seconds": seconds})
        del sources, target
    return points


# Names of dtypes as graphs print them.
DTYPES = {
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "b8",
    torch.uint64: "u64",
}
# Tokens on one device.
TOKENS = 8192
Call = tuple[str, str, Callable[[], tuple[list[Any], dict[str, Any]]]]


def calls() -> Iterator[Call]:
    """Calls of Llama-3 8B, Mixtral 8x7B and GPT-2 at `TOKENS` tokens, whole and cut over 8 devices: model, operator, arguments."""
    t = TOKENS
    llama, mixtral, gpt2 = "llama-3-8b", "mixtral-8x7b", "gpt2"

    def bf16(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(torch.bfloat16)

    def f32(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda")

    def below(n: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, n, shape, device="cuda")

    def of(*args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(args), kwargs

    # Products: forward, gradient of the input, gradient of the weight.
    projections = [
        (llama, 4096, 4096),
        (llama, 4096, 1024),
        (llama, 4096, 14336),
        (llama, 14336, 4096),
        (llama, 4096, 128256),
        (llama, 4096, 512),
        (llama, 512, 4096),
        (llama, 4096, 1792),
        (llama, 1792, 4096),
        (llama, 4096, 16032),
        (gpt2, 768, 2304),
        (gpt2, 768, 3072),
        (gpt2, 3072, 768),
        (gpt2, 768, 50257),
    ]
    for model, k, n in projections:
        for rows in (t, t // 8):
            yield model, "mm.default", lambda k=k, n=n, rows=rows: of(bf16(rows, k), bf16(n, k).t())
            yield model, "mm.default", lambda k=k, n=n, rows=rows: of(bf16(rows, n), bf16(n, k))
            yield model, "mm.default", lambda k=k, n=n, rows=rows: of(bf16(rows, n).t(), bf16(rows, k))
    for k, n in ((4096, 14336), (14336, 4096)):
        ends = torch.arange(1, 9, device="cuda", dtype=torch.int32) * (2 * t // 8)
        yield mixtral, "_grouped_mm.default", lambda k=k, n=n, ends=ends: of(bf16(2 * t, k), bf16(8, k, n), ends)
    # Attention below the diagonal.
    for model, batch, heads, rows, width in (
        (llama, 1, 32, 8192, 128),
        (llama, 2, 32, 4096, 128),
        (llama, 2, 4, 4096, 128),
        (gpt2, 8, 12, 1024, 64),
        (gpt2, 1, 12, 1024, 64),
    ):
        for name in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"):
            more = () if "flash" in name else (None, True)

            def forward(b=batch, h=heads, s=rows, d=width, more=more) -> tuple[list[Any], dict[str, Any]]:
                return of(bf16(b, h, s, d), bf16(b, h, s, d), bf16(b, h, s, d), *more, 0.0, True)

            def backward(forward=forward, name=name) -> tuple[list[Any], dict[str, Any]]:
                args, _ = forward()
                out, sums, ends_q, ends_k, q, k, seed, offset, *_ = getattr(torch.ops.aten, name).default(*args)
                kept = (*args[:3], out, sums)
                if "flash" in name:
                    return of(torch.randn_like(out), *kept, ends_q, ends_k, q, k, 0.0, True, seed, offset)
                return of(torch.randn_like(out), *kept, seed, offset, None, ends_q, ends_k, q, k, 0.0, True)

            yield model, f"{name}.default", forward
            yield model, f"{name}_backward.default", backward
    # Norms.
    for model, width in ((llama, 4096), (gpt2, 768)):
        if model == llama:
            yield model, "_fused_rms_norm.default", lambda w=width: of(bf16(t, w), [w], bf16(w), 1e-5)
            yield model, "_to_copy.default", lambda w=width: of(bf16(t, w), dtype=torch.float32)
            yield model, "pow.Tensor_Scalar", lambda w=width: of(f32(t, w), 2)
            yield model, "mean.dim", lambda w=width: of(f32(t, w), [-1], True)
        else:
            yield model, "native_layer_norm.default", lambda w=width: of(bf16(t, w), [w], bf16(w), bf16(w), 1e-5)

            def norm_backward(w=width) -> tuple[list[Any], dict[str, Any]]:
                x, weight, bias = bf16(t, w), bf16(w), bf16(w)
                _, mean, rstd = torch.ops.aten.native_layer_norm.default(x, [w], weight, bias, 1e-5)
                return of(bf16(t, w), x, [w], mean, rstd, weight, bias, [True, True, True])

            yield model, "native_layer_norm_backward.default", norm_backward
        yield model, "sum.dim_IntList", lambda w=width: of(bf16(t, w), [0], True)
        yield model, "add.Tensor", lambda w=width: of(bf16(t, w), bf16(t, w))
        yield model, "mul.Tensor", lambda w=width: of(bf16(t, w), bf16(w))
        yield model, "mul.Scalar", lambda w=width: of(f32(t, w), 0.5)
    # Activation functions, dropout, rotary embedding.
    for rows in (t, t // 8):
        yield llama, "silu.default", lambda r=rows: of(bf16(r, 14336))
        yield llama, "silu_backward.default", lambda r=rows: of(bf16(r, 14336), bf16(r, 14336))
        yield llama, "mul.Tensor", lambda r=rows: of(bf16(r, 14336), bf16(r, 14336))
        yield gpt2, "gelu.default", lambda r=rows: of(bf16(r, 3072))
        yield gpt2, "gelu_backward.default", lambda r=rows: of(bf16(r, 3072), bf16(r, 3072))
    yield gpt2, "native_dropout.default", lambda: of(bf16(t, 768), 0.1, True)
    yield llama, "neg.default", lambda: of(bf16(1, 32, t, 64))
    yield llama, "cat.default", lambda: of([bf16(1, 32, t, 64), bf16(1, 32, t, 64)], -1)
    yield llama, "clone.default", lambda: of(bf16(t, 4096))
    # Softmax and loss.
    yield gpt2, "_softmax.default", lambda: of(bf16(8, 12, 1024, 1024), -1, False)
    yield gpt2, "_softmax_backward_data.default", lambda: of(
        bf16(8, 12, 1024, 1024), bf16(8, 12, 1024, 1024), -1, torch.bfloat16
    )
    yield mixtral, "_softmax.default", lambda: of(f32(t, 8), -1, False)
    yield mixtral, "topk.default", lambda: of(f32(t, 8), 2)
    for model, vocabulary, rows in ((llama, 128256, t), (llama, 128256, t // 8), (gpt2, 50257, t)):
        yield model, "_log_softmax.default", lambda v=vocabulary, r=rows: of(f32(r, v), 1, False)
        yield model, "_log_softmax_backward_data.default", lambda v=vocabulary, r=rows: of(
            f32(r, v), f32(r, v), 1, torch.float32
        )
        yield model, "_to_copy.default", lambda v=vocabulary, r=rows: of(bf16(r, v), dtype=torch.float32)
        yield model, "_to_copy.default", lambda v=vocabulary, r=rows: of(f32(r, v), dtype=torch.bfloat16)
        yield model, "nll_loss_forward.default", lambda v=vocabulary, r=rows: of(f32(r, v), below(v, r), None, 1, -100)

        def loss_backward(v=vocabulary, r=rows) -> tuple[list[Any], dict[str, Any]]:
            x, labels = f32(r, v), below(v, r)
            _, weight = torch.ops.aten.nll_loss_forward.default(x, labels, None, 1, -100)
            return of(f32(), x, labels, None, 1, -100, weight)

        yield model, "nll_loss_backward.default", loss_backward
    # Tables of rows.
    for model, vocabulary, width in ((llama, 128256, 4096), (gpt2, 50257, 768)):
        yield model, "embedding.default", lambda v=vocabulary, w=width: of(bf16(v, w), below(v, t))
        yield model, "embedding_dense_backward.default", lambda v=vocabulary, w=width: of(
            bf16(t, w), below(v, t), v, -1, False
        )

    # Optimizer: float32 weights, gradients and moments of one product of each model, in one kernel.
    def update(*shape: int) -> tuple[list[Any], dict[str, Any]]:
        step = torch.ones((), device="cuda")
        states = [[f32(*shape)] for _ in range(3)] + [[f32(*shape).abs()]]
        rates = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
        return [*states, [], [step]], {**rates, "amsgrad": False, "maximize": False}

    for model, shape in ((llama, (14336, 4096)), (mixtral, (8, 4096, 14336)), (gpt2, (768, 3072))):
        yield model, "_fused_adamw_.default", lambda shape=shape: update(*shape)


def described(value: Any) -> Any:
    """An argument as the calibration has it: tensors by dtype and shape, `turned` where the last two dims lie the other way round."""
    if isinstance(value, torch.Tensor):
        flipped = value.dim() >= 2 and not value.is_contiguous() and value.transpose(-1, -2).is_contiguous()
        return {"dtype": DTYPES[value.dtype], "shape": list(value.shape), **({"turned": True} if flipped else {})}
    if isinstance(value, torch.dtype):
        return {"name": DTYPES[value]}
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    return value


def sizes(value: Any) -> Iterator[int]:
    """Bytes of the tensors in an argument."""
    if isinstance(value, torch.Tensor):
        yield value.numel() * value.element_size()
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from sizes(each)


def kernels(repeats: int) -> list:
    """Seconds of the device for whole calls of ATen operators, one after another."""
    points = []
    for model, op, make in calls():
        name, _, overload = op.partition(".")
        try:
            run = getattr(getattr(torch.ops.aten, name), overload)
            args, kwargs = make()
            largest = max(sizes(args), default=0)
            # What fits the cache of the device is rotated, what is larger than it washes it anyway.
            sets = [(args, kwargs)] + [make() for _ in range(2 if largest < 2**28 else 0)]
            inner = max(3, min(100, int(2e10 / max(largest, 1) / 8)))

            def call(i: int) -> object:
                given, named = sets[i % len(sets)]
                return run(*given, **named)

            # Calls that ask the device for a size cannot be part of a graph.
            timed = median_seconds if op.startswith(("_grouped_mm", "embedding_dense_backward")) else graph_seconds
            seconds = timed(call, repeats, inner)
        except (AttributeError, RuntimeError, TypeError) as error:
            print(f"{op} of {model}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            torch.cuda.empty_cache()
            continue
        more = {"kwargs": {key: described(v) for key, v in kwargs.items()}} if kwargs else {}
        points.append({"model": model, "op": f"aten.{op}", "args": described(args), **more, "seconds": seconds})
        del sets, args, kwargs
        torch.cuda.empty_cache()
    return points


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA or ROCm device", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = True
    small = torch.zeros(64, device="cuda")
    tiny = torch.zeros(16, 16, device="cuda", dtype=torch.bfloat16)
    tiny_out = torch.empty_like(tiny)
    calibration = {
        "version": 1,
        "device": torch.cuda.get_device_name(0),
        "software": f"torch {torch.__version__}",
        "matmul": {unit: matmuls(dtype, args.repeats) for unit, dtype in UNITS.items()},
        "attention": attention(args.repeats),
        "memory": copies(args.repeats),
        "kernels": kernels(args.repeats),
        "launchSeconds": median_seconds(lambda _: small.add_(1.0), args.repeats, 1000),
        "matmulLaunchSeconds": median_seconds(lambda _: torch.mm(tiny, tiny, out=tiny_out), args.repeats, 1000),
    }
    json.dump(calibration, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
