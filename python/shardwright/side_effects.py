"""Notices what `forward` reads and changes outside of its tensors: random numbers that are not PyTorch's, clocks, values of attributes.

A graph has what one call read, and the steps of a plan do not run `forward`.
"""

from __future__ import annotations

import datetime
import os
import random
import sys
import time
import types
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from .errors import CaptureError
from .modes import PLAIN

#: Functions of `time` whose values differ from call to call.
_CLOCKS = (
    *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns"),
    *("thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
)
#: Functions that read a clock unless they are given a time, with the position of that argument.
_CLOCKS_WITHOUT_TIME = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
#: Methods of `datetime.datetime` and `datetime.date` that read a clock.
_NOW = ("now", "utcnow", "today")
#: Modules that read clocks for themselves.
_OWN = ("torch", "contextlib", "logging", "threading", "shardwright")
#: Classes of NumPy's generators.
_NUMPY = ("Generator", "RandomState")


@contextmanager
def telling_side_effects(name: str, model: nn.Module, functions: Sequence[Any]) -> Iterator[None]:
    """Refuses models that draw Python's or NumPy's random numbers; warns of clocks that are read and of attributes that change.

    Args:
        name: what messages call the model.
        model: of which `forward` runs, with the attributes that it changes.
        functions: others that run, such as a loss.

    Raises:
        CaptureError: E_RANDOM, with the generators as they were; E_MUTATION of `.data` that is set.
    """
    scopes = _scopes(model, functions)
    generators = _generators(model, scopes)
    states = {key: _state(generator) for key, generator in generators.items()}
    values = _values(model)
    read: list[str] = []
    drawn: list[str] = []
    with ExitStack() as stack:
        for owner, key, told in [*_told_clocks(scopes, read), *_told_seeds(scopes, drawn), *_told_generators(scopes, drawn)]:
            stack.enter_context(_replaced(owner, key, told))
        stack.enter_context(_data_set(model))
        yield
    for key, generator in generators.items():
        if repr(_state(generator)) != repr(states[key]):
            drawn.append(key)
            _restore(generator, states[key])
    if drawn:
        names = " and ".join(dict.fromkeys(drawn))
        raise CaptureError(
            "E_RANDOM",
            f"{name} draws from {names} in forward, and every step of a plan would use the numbers of one call",
            hint="draw with torch (torch.rand), or outside of the model and pass the value as an input.",
        )
    if read:
        warnings.warn(
            f"{name} reads {' and '.join(dict.fromkeys(read))} while it is captured: the graph has the values of this one call as "
            "constants, and every step of the plan uses them again. Pass the value as an input tensor.",
            stacklevel=5,
        )
    after = _values(model)
    changed = [key for key, value in values.items() if after.get(key) != value]
    if changed:
        warnings.warn(
            f"{name} changes its {', '.join(changed)} in forward: the graph has the value of this one call, and every step of the plan "
            f"uses it again. {_what_works(model, {key: values[key] for key in changed})}",
            stacklevel=5,
        )


def _what_works(model: nn.Module, changed: dict[str, str]) -> str:
    """Says what to write instead: a number as a buffer, which a plan carries from step to step; a list, dict or text changes elsewhere."""
    numbers, others = [], []
    for key, before in changed.items():
        owner, _, attribute = key.rpartition(".")
        value = vars(model.get_submodule(owner)).get(attribute)
        if isinstance(value, (bool, int, float, complex)):
            numbers.append(f'register_buffer("{attribute}", torch.tensor({before}))')
        else:
            others.append(key)
    hints = []
    if numbers:
        hints.append(f"Hold a number in a buffer, which a plan carries from step to step: {', '.join(numbers)}.")
    if others:
        hints.append(f"Change {', '.join(others)} outside of forward, or return the value as an output.")
    return " ".join(hints)


def _scopes(model: nn.Module, functions: Sequence[Any]) -> list[dict[str, Any]]:
    """The global names of the modules in which classes and functions of a model are written; those of PyTorch are left out."""
    found: dict[int, dict[str, Any]] = {}
    written = [cls for module in model.modules() for cls in type(module).__mro__]
    held = [value for module in model.modules() for value in vars(module).values()]
    for one in [*written, *(value for value in [*held, *functions] if isinstance(value, types.FunctionType))]:
        if one.__module__ is not None and one.__module__.partition(".")[0] not in ("torch", "builtins"):
            scope = vars(sys.modules[one.__module__]) if one.__module__ in sys.modules else getattr(one, "__globals__", {})
            found[id(scope)] = scope
    return list(found.values())


def _generators(model: nn.Module, scopes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Generators of random numbers that a model can reach: the common ones, those in its attributes, and global ones of its modules."""
    found: dict[str, Any] = {"random": random}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        found["numpy.random"] = numpy
    kinds = (random.Random, *(getattr(numpy, kind) for kind in _NUMPY if numpy is not None))
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, kinds):
                found[f"{name}.{key}" if name else key] = value
    for scope in scopes:
        found.update({key: value for key, value in scope.items() if isinstance(value, kinds)})
    return found


def _state(generator: Any) -> Any:
    """The state of a generator; None of one that has none, which the system's random bytes are."""
    if isinstance(generator, random.SystemRandom):
        return None
    if hasattr(generator, "getstate"):
        return generator.getstate()
    return generator.get_state(legacy=False) if hasattr(generator, "get_state") else generator.bit_generator.state


def _restore(generator: Any, state: Any) -> None:
    if hasattr(generator, "setstate"):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def _told_clocks(scopes: Sequence[dict[str, Any]], read: list[str]) -> Iterator[tuple[Any, str, Any]]:
    """Clocks that note when they are read: in their own modules, and under the names that the model's modules import them by."""

    def told(name: str, original: Callable[..., Any], time_at: int | None = None) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            is_given = time_at is not None and len(args) > time_at and args[time_at] is not None
            if not is_given and _calling(2).partition(".")[0] not in _OWN:
                read.append(name)
            return original(*args, **kwargs)

        return call

    replaced: dict[int, Any] = {
        id(getattr(time, clock)): told(f"time.{clock}()", getattr(time, clock), place)
        for clock, place in [*((clock, None) for clock in _CLOCKS), *_CLOCKS_WITHOUT_TIME.items()]
    }
    for original in (datetime.datetime, datetime.date):
        replaced[id(original)] = _told_dates(original, told)
    own: list[dict[str, Any]] = [vars(time), vars(datetime)]
    for scope in [*own, *scopes]:
        for key, value in list(scope.items()):
            if id(value) in replaced:
                yield scope, key, replaced[id(value)]


def _asking(depth: int) -> dict[str, Any]:
    """The names of the module that called, so many frames up, past those of the standard library: who asks for a draw."""
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in sys.stdlib_module_names:
        frame = frame.f_back
    return frame.f_globals


def _calling(depth: int) -> str:
    """The module of the function that calls, so many frames up."""
    return str(sys._getframe(depth).f_globals.get("__name__", ""))


def _told_dates(original: type, told: Callable[[str, Any], Any]) -> type:
    """A class in the place of `datetime.datetime` or `datetime.date`: its dates are those of the original, so are its instances."""

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    members = {
        now: staticmethod(told(f"datetime.{original.__name__}.{now}()", getattr(original, now))) for now in _NOW if hasattr(original, now)
    }
    return Kind(original.__name__, (original,), {**members, "__new__": lambda cls, *args, **kwargs: original(*args, **kwargs)})


def _told_generators(scopes: Sequence[dict[str, Any]], drawn: list[str]) -> Iterator[tuple[Any, str, Any]]:
    """`random.Random`, which notes when one is made without a seed, under each name that the model's modules have of it."""
    original = random.Random

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    class Told(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __init__(self, seed: Any = None) -> None:
            if seed is None and _calling(2).partition(".")[0] not in _OWN:
                drawn.append("random.Random()")
            super().__init__(seed)

    for scope in [vars(random), *scopes]:
        for key, value in list(scope.items()):
            if value is original:
                yield scope, key, Told


def _told_seeds(scopes: Sequence[dict[str, Any]], drawn: list[str]) -> Iterator[tuple[Any, str, Any]]:
    """Random bytes of the system, and generators that it seeds again at each call."""

    def told(name: str, original: Callable[..., Any], of_anyone: bool = False) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            asking = _asking(1)
            if of_anyone or any(asking is scope for scope in scopes):
                drawn.append(name)
            return original(*args, **kwargs)

        return call

    # Whoever draws from `SystemRandom` draws numbers; of others that ask the system, the model's own modules count.
    own: dict[str, Any] = vars(random)
    yield own, "_urandom", told("random.SystemRandom", own["_urandom"], True)
    yield vars(os), "urandom", told("os.urandom", os.urandom)
    if hasattr(os, "getrandom"):
        yield vars(os), "getrandom", told("os.getrandom", os.getrandom)
    for name in ("uuid1", "uuid4"):
        for scope in [vars(uuid), *scopes]:
            for key, value in list(scope.items()):
                if value is getattr(uuid, name):
                    yield scope, key, told(f"uuid.{name}()", value)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        made = numpy.default_rng

        def default_rng(seed: Any = None) -> Any:
            if seed is None:
                drawn.append("numpy.random.default_rng()")
            before = list(drawn)
            found = made(seed)
            # Its seed is not a draw of the model's own.
            drawn[:] = before
            return found

        yield vars(numpy), "default_rng", default_rng


@contextmanager
def _replaced(scope: dict[str, Any], key: str, value: Any) -> Iterator[None]:
    original = scope[key]
    scope[key] = value
    try:
        yield
    finally:
        if scope.get(key) is value:
            scope[key] = original


@contextmanager
def _data_set(model: nn.Module) -> Iterator[None]:
    """Copies a value that is set as `.data` into a buffer, and refuses it for other tensors: a graph has no such operation."""
    data: Any = torch._C.TensorBase.data

    def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
        is_buffer = any(buffer is tensor for buffer in model.buffers())
        if is_buffer and (tensor.shape, tensor.dtype) == (value.shape, value.dtype):
            with torch.no_grad():
                tensor.copy_(value)
            return
        place = next((name for name, parameter in model.named_parameters() if parameter is tensor), None)
        raise CaptureError(
            "E_MUTATION",
            "forward sets its .data" if place else "forward sets .data of a tensor",
            place=place,
            hint="change a parameter after the step under torch.no_grad(); give another tensor a name of its own.",
        )

    torch.Tensor.data = property(data.__get__, put)  # type: ignore[assignment]
    try:
        yield
    finally:
        del torch.Tensor.data


def _values(model: nn.Module) -> dict[str, str]:
    """Plain values that modules hold, and lists and dicts of them, by the name of their attribute."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key[0] != "_" and key != "training" and _is_plain(value):
                found[f"{name}.{key}" if name else key] = repr(value)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(member) for member in value)
    if isinstance(value, dict):
        return all(_is_plain(member) for member in value.values())
    return isinstance(value, PLAIN)
