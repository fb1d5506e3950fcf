"""Exceptions of the package: what is wrong, where, what was found and wanted, and the edit that fixes it."""

from __future__ import annotations

import traceback
from pathlib import Path


class ShardwrightError(RuntimeError):
    """A refusal. `code` is stable (`E_MESH`), `hint` is the edit that fixes it, `place` the file, node or name it is about."""

    def __init__(self, code: str, message: str, *, hint: str | None = None, place: str | None = None) -> None:
        self.code = code
        self.message = message
        self.hint = hint
        self.place = place
        where = f"{place}: " if place else ""
        fix = f"\n  hint: {hint}" if hint else ""
        super().__init__(f"{where}{code} {message}{fix}")


class CaptureError(ShardwrightError):
    """A model that cannot be captured as one graph."""


class CommandError(ShardwrightError):
    """A refusal of the `shardwright` command."""


class MismatchError(ShardwrightError):
    """A model, mesh, input or plan that is not the one the plan was made for."""


def line_of(error: BaseException) -> str | None:
    """The innermost line of the user's own code that an error came through."""
    import torch

    others = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def require_torch(minimum: tuple[int, int] = (2, 8)) -> None:
    """Refuses a PyTorch that is absent or too old.

    Raises:
        MismatchError: with both versions.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MismatchError("E_TORCH", "PyTorch is not installed", hint="pip install 'torch>=2.8'") from error
    parts = torch.__version__.split("+")[0].split(".")
    found = (int(parts[0]), int("".join(c for c in parts[1] if c.isdigit()) or 0))
    if found < minimum:
        wanted = ".".join(map(str, minimum))
        raise MismatchError(
            "E_TORCH",
            f"PyTorch is {torch.__version__}, at least {wanted} is needed",
            hint=f"pip install 'torch>={wanted}'",
        )


def require_jax(minimum: tuple[int, int] = (0, 8)) -> None:
    """Refuses a JAX that is absent or too old.

    Raises:
        MismatchError: with both versions.
    """
    wanted = ".".join(map(str, minimum))
    try:
        import jax
    except ModuleNotFoundError as error:
        raise MismatchError("E_JAX", "JAX is not installed", hint="pip install 'shardwright[jax]'") from error
    found = tuple(int(part) for part in jax.__version__.split(".")[:2])
    if found < minimum:
        raise MismatchError("E_JAX", f"JAX is {jax.__version__}, at least {wanted} is needed", hint=f"pip install 'jax>={wanted}'")
