"""What is timed on one device: products by shape and dtype, attention, calls that read and write, copies, and the start of a call.

All ranks run them at the same time, because that is how they run in a step: processes that share cores or memory share them here, too.
Calls are those of the exported program, `torch.ops.aten` from Python, so that Python's share of a call is part of its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .timing import Point

aten = torch.ops.aten

#: Units by dtype, as cluster files name them; of a processor the second ones.
UNITS = {torch.bfloat16: ("bf16", "bf16"), torch.float16: ("fp16", "fp16"), torch.float32: ("tf32", "fp32")}
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
#: Rotated operands: what fits a cache would else come from it.
SETS = 2


class Work:
    """Points of one device, no call of which needs more than a share of its memory or more seconds than a rate allows."""

    def __init__(self, device: torch.device, memory_bytes: int, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.limit = memory_bytes // 16
        self.is_processor = device.type == "cpu"

    def unit(self, dtype: torch.dtype) -> str:
        """Name of the unit that multiplies a dtype; float32 is on the TF32 units of a GPU where they are allowed."""
        if dtype == torch.float32 and not self.is_processor and not torch.backends.cuda.matmul.allow_tf32:
            return "fp32"
        return UNITS[dtype][1 if self.is_processor else 0]

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Values about 0, no more than 65,536 of which are drawn."""
        size = math.prod(shape)
        drawn = torch.randn(min(size, 2**16), device=self.device)
        return drawn.repeat(-(-size // drawn.numel()))[:size].reshape(shape).to(dtype)

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Of products; a processor has no units for 16 bits that all machines share, so float32 comes first there."""
        if self.is_processor:
            return [torch.float32] if self.quick else [torch.float32, torch.bfloat16]
        return [torch.bfloat16, torch.float32] if self.quick else [torch.bfloat16, torch.float16, torch.float32]

    def products(self) -> Iterator[Point]:
        """Products of [m, k] and [k, n]: forward, and as gradients have them with one side turned."""
        rows = [16, 128, 1024] if self.is_processor else [128, 1024, 8192]
        sides = [(64, 64), (256, 256), (1024, 256), (256, 1024), (1024, 1024), (1024, 4096), (4096, 1024)]
        if not self.is_processor:
            sides = [(1024, 1024), (1024, 4096), (4096, 1024), (4096, 4096), (4096, 16384), (16384, 4096)]
        if not self.quick:
            rows = sorted({*rows, *([64, 512, 4096] if self.is_processor else [512, 2048, 4096])})
            sides += [(512, 512), (512, 2048), (2048, 512)] if self.is_processor else [(8192, 8192), (512, 512)]
        for dtype in self.dtypes:
            for m in rows:
                for k, n in sides:
                    if 2 * m * k * n > (4e9 if self.is_processor else 4e12):
                        continue
                    yield self.product(dtype, m, k, n)

    def product(self, dtype: torch.dtype, m: int, k: int, n: int) -> Point:
        """One product; its right side lies turned, as weights of layers do."""
        made: list[tuple[torch.Tensor, torch.Tensor]] = []

        def run(i: int) -> object:
            if not made:
                made.extend((self.random(m, k, dtype=dtype), self.random(n, k, dtype=dtype).t()) for _ in range(SETS))
            left, right = made[i % SETS]
            return aten.mm.default(left, right)

        record = {"unit": self.unit(dtype), "m": m, "k": k, "n": n, "itemBytes": dtype.itemsize}
        return Point(f"product of {m} x {k} x {n} in {NAMES[dtype]}", run, record)

    def attention(self) -> Iterator[Point]:
        """Fused attention of which every score is computed, forward and its backward alone."""
        dtype = self.dtypes[0]
        shapes = [(1, 4, 256, 32), (2, 8, 512, 64)] if self.is_processor else [(2, 16, 2048, 64), (1, 32, 8192, 128)]
        if not self.quick:
            shapes += [(2, 8, 1024, 64)] if self.is_processor else [(4, 16, 1024, 64), (1, 32, 4096, 128)]
        for batch, heads, rows, channels in shapes:
            for backward in (False, True):
                run = self.attends((batch, heads, rows, channels), dtype, backward)
                record = {
                    "unit": self.unit(dtype),
                    "batch": batch,
                    "heads": heads,
                    "rows": rows,
                    "channels": channels,
                    "backward": backward,
                }
                yield Point(f"attention of {batch} x {heads} x {rows} x {channels}{', backward' if backward else ''}", run, record)

    def attends(self, shape: tuple[int, int, int, int], dtype: torch.dtype, backward: bool) -> Callable[[int], object]:
        """A call of attention, or of its backward whose forward is kept."""
        made: list[torch.Tensor] = []
        attention = torch.nn.functional.scaled_dot_product_attention

        def run(_: int) -> object:
            if not made:
                made.extend(self.random(*shape, dtype=dtype).requires_grad_(backward) for _ in range(3))
                if backward:
                    made.extend((attention(made[0], made[1], made[2]), self.random(*shape, dtype=dtype)))
            if not backward:
                with torch.no_grad():
                    return attention(made[0], made[1], made[2])
            return torch.autograd.grad(made[3], made[:3], made[4], retain_graph=True)

        return run

    def sizes(self) -> list[int]:
        """Bytes of tensors that are read and written."""
        top = 26 if self.is_processor else 28
        return [2**k for k in range(10, top + 1, 4 if self.quick else 2) if 2**k <= self.limit]

    def copies(self) -> Iterator[Point]:
        """Copies, by bytes read and written together."""
        for size in self.sizes():
            made: list[torch.Tensor] = []

            def run(i: int, size: int = size, made: list[torch.Tensor] = made) -> object:
                if not made:
                    made.extend(torch.ones(size // 4, device=self.device) for _ in range(SETS))
                return aten.clone.default(made[i % SETS])

            yield Point(f"copy of {size} bytes", run, {"bytes": 2 * size})

    def calls(self) -> Iterator[Point]:
        """Calls of operators by what they read and write, and the operations that they count: each at a few sizes."""
        sizes = [2**14, 2**18, 2**22] if self.is_processor else [2**16, 2**20, 2**24]
        if not self.quick:
            sizes += [2**16, 2**20, 2**24] if self.is_processor else [2**18, 2**22, 2**26]
        for size in sorted(each for each in sizes if each <= self.limit):
            for op, make in self.operators(size // 4).items():
                yield self.call(op, make, f"{size // 1024} KiB")
        yield from self.counted()

    def call(self, op: str, make: Callable[[], tuple[Any, ...]], what: str, flops: float = 0.0) -> Point:
        """A call with fresh operands of `make`; bytes are those of all tensors that go in and come out."""
        name, _, overload = op.removeprefix("aten.").partition(".")
        called = getattr(getattr(aten, name), overload)
        made: list[tuple[Any, ...]] = []
        record: dict[str, Any] = {"op": op, "unit": self.unit(torch.float32), "flops": flops}

        def run(i: int) -> object:
            if not made:
                made.extend(make() for _ in range(2))
                record["bytes"] = nbytes(made[0]) + nbytes(called(*made[0]))
            return called(*made[i % 2])

        return Point(f"{op} on {what}", run, record)

    def operators(self, n: int) -> dict[str, Callable[[], tuple[Any, ...]]]:
        """Operators that read and write about `n` elements, in rows of 256."""
        rows, width = n // 256, 256

        def x() -> torch.Tensor:
            return self.random(rows, width)

        def norm() -> tuple[Any, ...]:
            return x(), [width], self.random(width), self.random(width), 1e-5

        def norm_backward() -> tuple[Any, ...]:
            given = norm()
            _, mean, rstd = aten.native_layer_norm.default(*given)
            return x(), given[0], [width], mean, rstd, given[2], given[3], [True, True, True]

        def images() -> torch.Tensor:
            return self.random(n // 1024, 16, 8, 8)

        def batch_norm() -> tuple[Any, ...]:
            weight, bias, mean = (self.random(16) for _ in range(3))
            return images(), weight, bias, mean, torch.ones(16, device=self.device), True, 0.1, 1e-5

        def batch_norm_backward() -> tuple[Any, ...]:
            x, weight, _, mean, variance, *_ = given = batch_norm()
            _, saved, inverse, *_ = aten._native_batch_norm_legit_functional.default(*given)
            return images(), x, weight, mean, variance, saved, inverse, True, 1e-5, [True, True, True]

        def below() -> torch.Tensor:
            return torch.randint(0, width, (rows,), device=self.device)

        def nll_backward() -> tuple[Any, ...]:
            values, labels = x(), below()
            _, weight = aten.nll_loss_forward.default(values, labels, None, 1, -100)
            return self.random(), values, labels, None, 1, -100, weight

        return {
            "aten.add.Tensor": lambda: (x(), x()),
            "aten.mul.Tensor": lambda: (x(), x()),
            "aten.sum.dim_IntList": lambda: (x(), [0], True),
            "aten.mean.dim": lambda: (x(), [-1], True),
            "aten.relu.default": lambda: (x(),),
            "aten.threshold_backward.default": lambda: (x(), x(), 0),
            "aten.gelu.default": lambda: (x(),),
            "aten.gelu_backward.default": lambda: (x(), x()),
            "aten.silu.default": lambda: (x(),),
            "aten.silu_backward.default": lambda: (x(), x()),
            "aten.tanh.default": lambda: (x(),),
            "aten.rsqrt.default": lambda: (x().abs(),),
            "aten.pow.Tensor_Scalar": lambda: (x(), 2),
            "aten._softmax.default": lambda: (x(), -1, False),
            "aten._softmax_backward_data.default": lambda: (x(), x(), -1, torch.float32),
            "aten._log_softmax.default": lambda: (x(), 1, False),
            "aten._log_softmax_backward_data.default": lambda: (x(), x(), 1, torch.float32),
            "aten.nll_loss_forward.default": lambda: (x(), below(), None, 1, -100),
            "aten.nll_loss_backward.default": nll_backward,
            "aten.native_layer_norm.default": norm,
            "aten.native_layer_norm_backward.default": norm_backward,
            "aten._native_batch_norm_legit_functional.default": batch_norm,
            "aten.native_batch_norm_backward.default": batch_norm_backward,
            "aten.cat.default": lambda: ([x(), x()], -1),
            "aten.index_select.default": lambda: (x(), 0, torch.randint(0, rows, (rows,), device=self.device)),
            "aten.embedding.default": lambda: (x(), torch.randint(0, rows, (rows,), device=self.device)),
            "aten.embedding_dense_backward.default": lambda: (
                x(), torch.randint(0, rows, (rows,), device=self.device), rows, -1, False
            ),
        }  # fmt: skip

    def counted(self) -> Iterator[Point]:
        """Calls that multiply and are not plain products: batches of products, sums with a bias, convolutions."""
        dtype = torch.float32
        scale = 1 if self.is_processor else 8

        def bias(m: int, k: int, n: int) -> Callable[[], tuple[Any, ...]]:
            return lambda: (self.random(n), self.random(m, k, dtype=dtype), self.random(n, k, dtype=dtype).t())

        def batch(b: int, m: int, k: int, n: int) -> Callable[[], tuple[Any, ...]]:
            return lambda: (self.random(b, m, k, dtype=dtype), self.random(b, k, n, dtype=dtype))

        for m, k, n in ((16, 64, 64), (128, 256, 256), (256, 1024, 1024), (1024, 256, 1024)):
            m, k, n = m * scale, k * scale, n * scale
            yield self.call("aten.addmm.default", bias(m, k, n), f"{m} x {k} x {n}", 2.0 * m * k * n)
        for b, m, k, n in ((4, 16, 32, 16), (8, 128, 64, 128), (8, 256, 64, 256), (4, 256, 256, 1024)):
            m, n = m * scale, n * scale
            yield self.call("aten.bmm.default", batch(b, m, k, n), f"{b} x {m} x {k} x {n}", 2.0 * b * m * k * n)
        for rows, inputs, outputs, side in ((2, 16, 16, 8), (4, 16, 32, 32), (4, 64, 64, 16), (8, 128, 128, 8)):
            made, flops = self.convolution(rows * scale, inputs, outputs, side)
            what = f"{rows * scale} x {inputs} to {outputs} x {side} x {side}"
            yield self.call("aten.convolution.default", made, what, flops)
            made, flops = self.convolution_backward(rows * scale, inputs, outputs, side)
            yield self.call("aten.convolution_backward.default", made, what, flops)

    def convolution(self, rows: int, inputs: int, outputs: int, side: int) -> tuple[Callable[[], tuple[Any, ...]], float]:
        """A convolution of 3 x 3 that keeps the size of images, and its operations."""

        def make() -> tuple[Any, ...]:
            return self.random(rows, inputs, side, side), self.random(outputs, inputs, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1

        return make, 2.0 * rows * outputs * side * side * inputs * 9

    def convolution_backward(self, rows: int, inputs: int, outputs: int, side: int) -> tuple[Callable[[], tuple[Any, ...]], float]:
        """Both gradients of such a convolution."""
        forward, flops = self.convolution(rows, inputs, outputs, side)

        def make() -> tuple[Any, ...]:
            x, weight, _, *rest = forward()
            return self.random(rows, outputs, side, side), x, weight, [0], *rest, [True, True, False]

        return make, 2 * flops

    def starts(self) -> Iterator[Point]:
        """The smallest calls one behind another: Python, dispatch and launch."""
        small, other = torch.zeros(8, device=self.device), torch.zeros(8, device=self.device)
        tiny = torch.zeros(4, 4, device=self.device)
        yield Point("start of a call", lambda _: aten.add.Tensor(small, other), {"key": "launchSeconds"})
        yield Point("start of a product", lambda _: aten.mm.default(tiny, tiny), {"key": "matmulLaunchSeconds"})


def nbytes(value: Any) -> int:
    """Bytes of the tensors in a value."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(nbytes, value)) if isinstance(value, (list, tuple)) else 0


def allocator_share(device: torch.device) -> float | None:
    """Bytes that PyTorch's allocator keeps over those of the tensors that lived at once, of sizes as a step has them; None without one."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    draw = torch.Generator().manual_seed(0)
    alive: list[torch.Tensor] = []
    for size in torch.randint(2**18, 2**25, (400,), generator=draw).tolist():
        alive.append(torch.empty(size, dtype=torch.uint8, device=device))
        if len(alive) > 60:
            del alive[int(torch.randint(0, len(alive), (1,), generator=draw))]
    share = torch.cuda.max_memory_reserved() / max(1, torch.cuda.max_memory_allocated())
    alive.clear()
    torch.cuda.empty_cache()
    return round(share - 1, 4)
