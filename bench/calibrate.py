"""Measures matmuls, attention, copies and launches of one GPU and prints a calibration for `shardwright plan --calibration FILE`.

    python bench/calibrate.py > calibration.json

Needs PyTorch and a CUDA or ROCm device. Times are medians of CUDA events over repeated kernels after a warm-up; buffers are
rotated so that small shapes do not run from the cache of the run before. Takes about a minute.
"""

import argparse
import json
import statistics
import sys

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
        seconds = median_seconds(
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
        seconds = median_seconds(lambda i: target.copy_(sources[i % 3]), repeats, 20)
        points.append({"bytes": 2 * size, "seconds": seconds})
        del sources, target
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
        "launchSeconds": median_seconds(lambda _: small.add_(1.0), args.repeats, 1000),
        "matmulLaunchSeconds": median_seconds(lambda _: torch.mm(tiny, tiny, out=tiny_out), args.repeats, 1000),
    }
    json.dump(calibration, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
