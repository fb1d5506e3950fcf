"""Captures PyTorch's own operator tests (`op_db`) as programs: of each OpInfo the first sample on the CPU in float32, forward alone
and joint with the gradients of its floating-point results.

Writes `N.forward.fx.txt` and `N.joint.fx.txt` into a folder, and prints a JSON line for each: its name, the operators that it calls,
or why it was not captured. The op_db is that of the installed torch:

    PYTHONPATH=python python scripts/engines/op_db.py FOLDER
"""

import json
import pathlib
import signal
import sys
import warnings

warnings.simplefilter("ignore")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from shardwright.errors import CaptureError
from shardwright.graph_capture import capture


class Call(torch.nn.Module):
    """One sample of an operator as a function of its tensors."""

    def __init__(self, op, sample, copied):
        super().__init__()
        self.__dict__["copied"] = copied
        leaves, self.__dict__["spec"] = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.__dict__["op"] = op
        self.__dict__["fixed"] = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
        self.__dict__["tensors"] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors):
        # An operator that changes its operands gets copies: a program may not change its inputs.
        given = iter([tensor.clone() for tensor in tensors] if self.copied else tensors)
        leaves = [next(given) if fixed is None else fixed[0] for fixed in self.fixed]
        first, args, kwargs = tree_unflatten(leaves, self.spec)
        outputs = [o for o in tree_flatten(self.op(first, *args, **kwargs))[0] if isinstance(o, torch.Tensor)]
        return tuple(outputs)


def total(outputs):
    """A number that depends on every result that has a gradient."""
    parts = [torch.view_as_real(o.resolve_conj()) if o.is_complex() else o for o in outputs if o.requires_grad]
    return sum(part.sum() for part in parts)


def late(*_):
    raise TimeoutError("capture takes more than 20 seconds")


def captured(path, op, kind, copied=False):
    torch.manual_seed(0)
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=kind == "joint")))
    call = Call(op, sample, copied)
    try:
        capture(call, call.tensors, loss=total if kind == "joint" else False, path=path, gradients=kind == "joint")
    except CaptureError as error:
        if copied or "E_MUTATION" not in str(error):
            raise
        captured(path, op, kind, copied=True)


def line(folder, k, op, kind):
    named = {"name": op.name + (f" ({op.variant_test_name})" if op.variant_test_name else ""), "kind": kind}
    try:
        signal.alarm(20)
        path = folder / f"{k}.{kind}.fx.txt"
        captured(path, op, kind)
        return {**named, "file": path.name}
    except CaptureError as error:
        return {**named, "error": str(error).splitlines()[0][:300]}
    except Exception as error:
        return {**named, "error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
    finally:
        signal.alarm(0)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, late)
    print(json.dumps({"torch": torch.__version__}))
    for k, op in enumerate(op_db):
        kinds = ["forward", "joint"] if op.supports_autograd else ["forward"]
        for kind in kinds:
            if torch.float32 in op.dtypes:
                print(json.dumps(line(folder, k, op, kind)), flush=True)


main()
