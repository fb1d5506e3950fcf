"""The model under its plan: the user's own object, whose class becomes a subclass of its own that calls the plan's programs.

Modules, names, aliases, hooks, attributes and methods stay what they are, and so does the order of parameters, which become DTensors.

Source: `fully_shard` of PyTorch, which changes the class of a module in the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from .errors import MismatchError
from .loading import as_planned

if TYPE_CHECKING:
    from .programs import Programs
    from .run import Run

#: The one name of ours in a model: any other could be one of the model's.
NAME = "shardwright"


class ParallelModule(nn.Module):
    """Members that a model that was taken over has in addition to its own class."""

    @torch._disable_dynamo  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program of such a call.

        Inputs are those of the model; where the plan has a loss function, those of the loss may follow. They are whole tensors, the same
        on every rank, or DTensors.

        Returns:
            What the model returns, as whole tensors; with outputs="placed", outputs of which devices have parts are DTensors.
        """
        return programs_of(self).call(self, args, kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Loads as every module does; takes whole tensors, and DTensors of this or another plan.

        Raises:
            MismatchError: before anything changes, for other sizes, and for the part of another rank.
        """
        return super().load_state_dict(as_planned(self, state_dict), strict, assign)

    def apply(self, fn: Callable[[nn.Module], Any]) -> Any:
        """Applies as every module does; `fn` sees whole weights, as initialisations of single rows and columns need them."""
        with whole_weights(self):
            return super().apply(fn)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Works as in DDP: backward passes inside reduce no gradients, which are added up until a pass outside reduces their sum once."""
        accumulation = programs_of(self).accumulation
        before, accumulation.synced = accumulation.synced, False
        try:
            yield
        finally:
            accumulation.synced = before

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Says, as in FSDP2, whether backward passes from now on reduce gradients."""
        programs_of(self).accumulation.synced = requires_gradient_sync

    def __getattr__(self, name: str) -> Any:
        """Finds attributes as every module does; says what takes the place of those of DDP and DataParallel."""
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            if name != "module":
                raise
            said = f"'{type(self).__name__}' object has no attribute 'module': it is the model itself, which DDP and DataParallel wrap"
            raise AttributeError(said, name=name, obj=self) from error

    def __reduce__(self) -> Any:
        """Refuses to be pickled."""
        raise MismatchError(
            "E_MODEL",
            f"{original_class(type(self)).__name__} under a plan holds process groups, which no file keeps",
            hint="save model.state_dict() (torch.distributed.checkpoint, or gathered by get_model_state_dict).",
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A model with weights of its own and the same programs."""
        import copy

        cls = type(self)
        made = cls.__new__(cls)
        memo[id(self)] = made
        made.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return made


@contextmanager
def whole_weights(module: Any) -> Iterator[None]:
    """Parameters and buffers of a parallel module are whole plain tensors inside, the same on every rank, and may be written.

    All ranks enter together. Weights on the meta device stay as they are.
    """
    states = [*module.parameters(), *module.buffers()]
    if programs_of(module).gathered.inside or any(state.is_meta for state in states):
        yield
        return
    with programs_of(module).gathered.whole(uncompiled(module), written=True):
        yield


def _save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Saves as the model's own class does: whole weights, under its own name, written by one rank; all ranks call this together."""
    mesh = programs_of(self).mesh
    cls = type(self)
    with whole_weights(self):
        self.__class__ = original_class(cls)
        try:
            saved = self.save_pretrained(*args, **{"is_main_process": dist.get_rank() == int(mesh.mesh.flatten()[0]), **kwargs})
        finally:
            self.__class__ = cls
    # Nobody reads before all is written.
    dist.barrier()
    return saved


def take_over(model: nn.Module, programs: Programs) -> ParallelModule:
    """Makes a model an instance of a subclass of its class that calls programs."""
    own = type(model)
    members: dict[str, Any] = {"__module__": own.__module__, "__doc__": own.__doc__}
    if hasattr(own, "save_pretrained"):
        members["save_pretrained"] = _save_pretrained
    members["forward"] = _forward_like(model.forward)
    model.__class__ = type(f"Parallel{own.__name__}", (ParallelModule, own), members)
    # A forward that was set on the object would hide that of the class.
    programs.own_forward = model.__dict__.pop("forward", None)
    model.__dict__[NAME] = programs
    assert isinstance(model, ParallelModule)
    return model


def _forward_like(own: Callable[..., Any]) -> Callable[..., Any]:
    """The forward method of a parallel module, with the signature of the model's own: trainers read the names of inputs from it."""

    def forward(self: ParallelModule, *args: Any, **kwargs: Any) -> Any:
        return ParallelModule.forward(self, *args, **kwargs)

    given = inspect.signature(own)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    forward.__signature__ = given.replace(parameters=[this, *given.parameters.values()])  # type: ignore[attr-defined]
    forward.__doc__ = own.__doc__
    return forward


def original_class(cls: type) -> type:
    """The user's class, of that of a parallel module too."""
    return cls.__mro__[2] if ParallelModule in cls.__mro__[1:2] else cls


def original_of(copied: nn.Module) -> nn.Module:
    """Undoes `take_over` on a copy."""
    programs = copied.__dict__.pop(NAME, None)
    if programs is not None:
        copied.__class__ = original_class(type(copied))
        if programs.own_forward is not None:
            copied.__dict__["forward"] = programs.own_forward
    return copied


def forward_of(model: Any) -> Any:
    """The user's own `forward` of a model, of a parallel one too."""
    if not isinstance(model, ParallelModule):
        return model.forward
    own = programs_of(model).own_forward
    return own if own is not None else super(ParallelModule, model).forward


def programs_of(module: ParallelModule) -> Programs:
    """The programs that a parallel module calls."""
    return uncompiled(module).__dict__[NAME]


def uncompiled(model: Any) -> Any:
    """The module that `torch.compile` wraps; another as it is."""
    return model._modules.get("_orig_mod", model)


def run_of(module: ParallelModule) -> Run:
    """The program for which a parallel module was planned."""
    return programs_of(module).main
