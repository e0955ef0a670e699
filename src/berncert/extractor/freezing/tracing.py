"""The network as a graph of steps, taken from its own forward; and whether any of them changes a value in place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from berncert.extractor.freezing.registration import is_leaf

IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}


def _refuse_hash(self: Any) -> int:
    raise TypeError("a value of the network, or its size, decides what is looked up")


def _recorded(change: Any) -> Callable[[Any, Any], fx.Proxy]:
    """A method that records the change in place as a step of its own."""
    return lambda self, other: self.tracer.create_proxy("call_function", change, (self, other), {})


class _Attribute(fx.proxy.Attribute):
    """A stand-in for e.g. x.shape, on which no decision can depend."""

    __hash__ = _refuse_hash


class _Value(fx.Proxy):
    """A stand-in for a value, on which no decision can depend; it records `x += y` as a change in place."""

    __hash__ = _refuse_hash

    def __getattr__(self, k: str) -> fx.proxy.Attribute:
        return _Attribute(self, k)

    __iadd__, __isub__, __imul__, __itruediv__ = map(_recorded, IN_PLACE)


class _Tracer(fx.Tracer):
    """Follows a network down to the modules that are translated as they are, or that nothing can look into."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_leaf(m)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise TypeError("automatic mixed precision rounds more than is accounted for; leave it out of the network")
        return super().create_node(*args, **kwargs)


def trace(root: nn.Module) -> fx.Graph:
    """The steps of the network, modules that are leaves unopened."""
    try:
        return _Tracer().trace(root)
    except Exception as error:  # whatever the user's forward does with a stand-in for its input
        raise TypeError(
            f"the forward of {type(next(root.children())).__name__} cannot be followed ({error}); build it from "
            "modules, or register a bound for it with berncert.register_bound"
        ) from error


def name_of(node: fx.Node) -> str:
    """The name of the step in tables and errors: as the user named the module, or by what it does."""
    if node.op == "call_module":
        return "the network" if node.target == "0" else str(node.target).removeprefix("0.")
    return node.name.removeprefix("_0_")


def refuse_stale_values(root: nn.Module, graph: fx.Graph, image: Tensor, *, must_run: bool = True) -> None:
    """Run the network; raise a TypeError if a step changes in place a constant, or what a later step looks at."""
    constants = {name: (t, t._version) for name, t in (*root.named_parameters(), *root.named_buffers())}
    try:
        with torch.no_grad():
            _Watcher(fx.GraphModule(root, graph)).run(image.clone(memory_format=torch.preserve_format))
    except (RuntimeError, ValueError, IndexError) as error:
        if not must_run:  # e.g. x.view(...) of images in another order in memory
            return
        raise TypeError(
            f"the network cannot be run in float64 ({error}); register the tensors that it uses as buffers"
        ) from error
    for name, (tensor, version) in constants.items():
        if tensor._version != version:
            raise TypeError(
                f"{name.removeprefix('0.')} is changed in place when the network runs, so that each call finds "
                "another; compute without"
            )


class _Watcher(fx.Interpreter):
    """Runs the steps and compares, each time a value is used, its version with that of when it was made.

    Torch counts a tensor's changes in place, also those made through another view of the same memory.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.extra_traceback = False  # of torch, after the message

    def run_node(self, n: fx.Node) -> Any:
        made: dict[fx.Node, list[int]] = self.__dict__.setdefault("made", {})
        for source in n.all_input_nodes:
            if made.get(source) != [t._version for t in _tensors(self.env[source])]:
                raise TypeError(
                    f"{name_of(n)}: uses {name_of(source)}, which another step has changed in place since; write "
                    "inplace=False, and x = x + y instead of x += y"
                )
        result = super().run_node(n)
        made[n] = [t._version for t in _tensors(result)]
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
