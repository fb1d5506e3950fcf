"""Writes the node tests of the installed onnx, one JSON line each: the model, and its inputs and outputs as numbers.

A test whose shapes depend on inputs is written with all inputs as initializers, too (`baked`): ONNX
passes shapes, axes and pads as inputs, and a graph here has them as arguments.
"""

import base64
import json
import pathlib
import sys
import warnings

warnings.simplefilter("ignore")

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


def numbers(value):
    """An array as dtype, shape and float64 numbers; None for what is not a tensor of numbers."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return None
    if array.dtype.kind == "c":
        return None
    flat = array.astype(np.float64).ravel()
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "data": [v if np.isfinite(v) else str(v) for v in flat.tolist()],
    }


def encoded(model):
    return base64.b64encode(model.SerializeToString()).decode()


def baked(model, inputs):
    """The model with its inputs as initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info, value in zip(model.graph.input, inputs):
        if isinstance(value, onnx.TensorProto):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
            tensor.name = info.name
        elif isinstance(value, (np.ndarray, np.generic)):
            tensor = numpy_helper.from_array(np.asarray(value), info.name)
        else:
            return None
        copy.graph.initializer.append(tensor)
    return encoded(copy)


def recorded(folder, kind, count):
    """Values of a test that an older onnx keeps in files; None for what is not a tensor."""
    values = []
    for i in range(count):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString((folder / f"{kind}_{i}.pb").read_bytes())
            numpy_helper.to_array(tensor)
            values.append(tensor)
        except Exception:
            values.append(None)
    return values


def line(test):
    if test.model is not None:
        model = test.model
        inputs, outputs = test.data_sets[0]
    else:
        model = onnx.load(pathlib.Path(test.model_dir) / "model.onnx")
        folder = pathlib.Path(test.model_dir) / "test_data_set_0"
        inputs = recorded(folder, "input", len(model.graph.input))
        outputs = recorded(folder, "output", len(model.graph.output))
    values = {info.name: numbers(v) for info, v in zip(model.graph.input, inputs)}
    for tensor in model.graph.initializer:
        values[tensor.name] = numbers(tensor)
    return {
        "name": test.name,
        "operator": test.name.split("_expanded")[0],
        "ops": sorted({n.op_type for n in model.graph.node}),
        "opset": max([o.version for o in model.opset_import if o.domain in ("", "ai.onnx")] or [0]),
        "model": encoded(model),
        "baked": baked(model, inputs),
        "inputs": values,
        "outputs": [numbers(v) for v in outputs],
        "rtol": test.rtol,
        "atol": test.atol,
    }


def main():
    print(json.dumps({"onnx": onnx.__version__}))
    for test in sorted(load_model_tests(kind="node"), key=lambda t: t.name):
        print(json.dumps(line(test)))


main()
