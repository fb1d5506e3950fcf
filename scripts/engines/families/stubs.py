"""Stands in for packages that model code imports but does not need for its arithmetic: torchvision (image transforms of
timm) and fbgemm_gpu (fused embedding kernels of torchrec), neither of which installs beside a CPU build of torch."""

import importlib.abc
import importlib.machinery
import sys
import types


class Missing(type):
    """A class whose attributes are classes like it, so that `import a.b; a.b.C.D` and `class X(a.b.C)` pass."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name, (), {})


class StubModule(types.ModuleType):
    __version__ = "0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots):
        self.roots = roots

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.roots else None

    def create_module(self, spec):
        module = StubModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def stub(*roots):
    sys.meta_path.insert(0, Finder(set(roots)))
