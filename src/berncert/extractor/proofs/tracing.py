"""The network as a graph of steps, taken from its own forward, and made sure to be what the forward computes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from berncert.extractor.proofs.facts import Shape, find_rule, placement
from berncert.extractor.proofs.steps import IN_PLACE, MODULE_OF, MOVES

# modules that may return their input itself, or a view of it
VIEWS = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)


class _Value(fx.Proxy):
    """A stand-in for a value that records `x += y` as what it is: a change in place."""

    def _changed(self, change: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", change, (self, other), {})

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.itruediv, other)


class _Tracer(fx.Tracer):
    """Follows a network down to the modules that have a rule, or that nothing can look into."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        opaque = type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential | nn.ModuleList)
        return find_rule(m) is not None or opaque

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise TypeError("automatic mixed precision rounds more than is accounted for; leave it out of the network")
        return super().create_node(*args, **kwargs)


def trace(root: nn.Module) -> fx.Graph:
    """The steps of the network; none changes in place what is looked at again later."""
    try:
        graph = _Tracer().trace(root)
    except Exception as error:  # whatever the user's forward does with a stand-in for its input
        raise TypeError(
            f"the forward of {type(next(root.children())).__name__} cannot be followed ({error}); build it from "
            "modules, or register a bound for it with lipschitz_bound.register"
        ) from error
    _refuse_shared_in_place(graph, dict(root.named_modules()))
    return graph


def require_same(root: nn.Module, graph: fx.Graph, shape: Shape) -> None:
    """An error if the graph computes something else than the network, or the network not the same twice."""
    like = placement(root)
    image = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
    with torch.no_grad():
        first, second, traced = (run(image.clone()) for run in (root, root, fx.GraphModule(root, graph)))
    if not (_agree(first, second) and _agree(first, traced)):
        raise TypeError(
            "the network does not compute what its forward says when it is followed: something random, a state that "
            "changes, or a test of the type of its input; register a bound for that part with lipschitz_bound.register"
        )


def _agree(a: Tensor, b: Tensor) -> bool:
    """To the last bit, where the hardware keeps its order of operations."""
    loose = {} if a.device.type == "cpu" else {"rtol": 1e-4, "atol": 1e-6}
    return a.shape == b.shape and torch.allclose(a, b, **({"rtol": 0.0, "atol": 0.0} | loose), equal_nan=True)


def name_of(node: fx.Node) -> str:
    """What the step is called in tables and errors: as the user named the module, or by what it does."""
    if node.op == "call_module":
        return "the network" if node.target == "0" else str(node.target).removeprefix("0.")
    return node.name.removeprefix("_0_")


def _refuse_shared_in_place(graph: fx.Graph, modules: dict[str, nn.Module]) -> None:
    """A value that is changed in place must not be looked at again under its old name."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    origin: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        changes = _changes_in_place(node, module)
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        views = changes or _may_view(node, module)
        origin[node] = origin.get(source, source) if source is not None and views else node
        if not changes or source is None:
            continue
        for other, root in list(origin.items()):
            late = [user for user in other.users if order[user] > order[node]]
            if other is not node and root is origin[node] and late:
                raise TypeError(
                    f"{name_of(node)}: changes in place a value that {name_of(late[0])} uses later; write inplace=False"
                )


def _changes_in_place(node: fx.Node, module: nn.Module | None) -> bool:
    return (
        bool(getattr(module, "inplace", False) or node.kwargs.get("inplace") is True)
        or node.target in IN_PLACE
        or (node.op == "call_method" and str(node.target).endswith("_"))
        or (node.target in MODULE_OF and any(arg is True for arg in node.args[1:]))
    )


def _may_view(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether the step's value may share memory with its argument; a layer of the user's may."""
    if module is None:
        return node.target in MOVES or node.target is torch.nn.functional.dropout
    ours = type(module).__module__.startswith(("torch.", "berncert."))
    return isinstance(module, VIEWS) or not ours
