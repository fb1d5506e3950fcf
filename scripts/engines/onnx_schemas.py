"""Writes data/onnx-schemas.json from the installed onnx: for each operator and version its inputs, and its attributes with their defaults."""

import json
import sys

import onnx
from onnx import defs, helper


def default(attribute):
    """The default as JSON; absent where there is none."""
    if not attribute.default_value.name:
        return {}
    value = helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, (list, tuple)):
        value = [v.decode() if isinstance(v, bytes) else v for v in value]
    return {"default": value}


def main(path):
    table = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain != "" or schema.deprecated:
            continue
        table.setdefault(schema.name, []).append(
            {
                "since": schema.since_version,
                "inputs": [i.name for i in schema.inputs],
                "attributes": {n: default(a) for n, a in sorted(schema.attributes.items())},
            }
        )
    ordered = {n: sorted(v, key=lambda s: s["since"]) for n, v in sorted(table.items())}
    record = {
        "source": f"onnx.defs of onnx {onnx.__version__} (PyPI), by scripts/engines/onnx_schemas.py",
        "opset": defs.onnx_opset_version(),
        "operators": ordered,
    }
    with open(path, "w") as file:
        json.dump(record, file, separators=(",", ":"))
        file.write("\n")


main(sys.argv[1])
