"""Loads every file of a folder in its language, in an empty working folder.

Takes the folder and prints {file: what read it}. A Python file is parsed and imported as a module; its
main part does not run. Whatever a file does when it is loaded is seen in the working folder.
"""

import ast
import json
import os
import pathlib
import runpy
import sys
import tempfile
import tomllib

import yaml


def load(path):
    if path.suffix == ".json":
        json.loads(path.read_text())
        return "json"
    if path.suffix == ".toml":
        tomllib.loads(path.read_text())
        return "tomllib"
    if path.suffix in (".yaml", ".yml"):
        if not isinstance(yaml.safe_load(path.read_text()), dict):
            raise ValueError(f"{path} is not a mapping")
        return "yaml"
    if path.suffix == ".mlir":
        from jax._src.interpreters import mlir
        from jaxlib.mlir import ir

        with mlir.make_ir_context():
            ir.Module.parse(path.read_text())
        return "mlir"
    if path.suffix == ".py":
        ast.parse(path.read_text())
        sys.path.insert(0, str(path.parent))
        runpy.run_path(str(path), run_name="loaded")
        sys.path.pop(0)
        return "python"
    return "text"


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        read = {str(path.relative_to(folder)): load(path) for path in files}
        left = os.listdir(empty)
        os.chdir(folder)
    print(json.dumps({"read": read, "left": left}))


main()
