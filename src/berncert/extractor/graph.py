"""The network as a graph: traced once, then walked with what is proven of each value in the place of the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from berncert.extractor.flow import Flow
from berncert.extractor.gains import Gains
from berncert.extractor.rules import RULES, Shape, find_rule
from berncert.extractor.steps import IN_PLACE, METHODS, MODULE_OF, VIEWS, Steps, kind_of


@dataclass(frozen=True)
class Step:
    """One step of the network with the value it yields, for the table."""

    name: str
    kind: str
    own: Gains | None
    """None for a step that joins several values."""
    flow: Flow


class _Tracer(fx.Tracer):
    """Follows a network down to the modules that have a rule, or that nothing can look into."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        opaque = type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential | nn.ModuleList)
        return find_rule(m) is not None or opaque


def walk(network: nn.Module, shape: Shape, norms: tuple[float, ...], unit: float) -> Iterator[Step]:
    """Every step of the network with what is proven of it, the last of which is the network's value."""
    root = nn.Sequential(network)  # so that a single layer is traced as a layer
    graph = _trace(root, network)
    _refuse_shared_in_place(graph, dict(root.named_modules()))
    values: dict[fx.Node, Any] = {}
    steps = Steps(root, norms, unit)
    last: Any = None
    for node in graph.nodes:
        if node.op == "output":
            last = fx.node.map_arg(node.args[0], values.__getitem__)
            break
        if node.op == "placeholder":
            if any(isinstance(value, Flow) for value in values.values()):
                raise TypeError(f"expected a network of one image, got a second argument {node.target!r}")
            values[node] = Flow.image(shape, norms, unit)
            continue
        name = _name(node)
        args = fx.node.map_arg(node.args, values.__getitem__)
        kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
        try:
            values[node], kind, own = steps.take(node, args, kwargs)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from error
        layer = _normalised_layer(node, steps)
        if layer is not None:  # both at once can be much less than one after the other
            before, norm = (steps.modules[str(n.target)] for n in (layer, node))
            values[node], own = steps.fold(before, norm, values[layer.all_input_nodes[0]], values[node])
            kind = f"{kind_of(before)}+{kind}"
        if isinstance(values[node], Flow):
            yield Step(name, kind, own, values[node])
    if not isinstance(last, Flow):
        raise TypeError(f"expected the network to return one tensor, got {type(last).__name__}")
    if last is not next((v for v in reversed(values.values()) if isinstance(v, Flow)), None):
        yield Step("output", "output", None, last)


def _normalised_layer(node: fx.Node, steps: Steps) -> fx.Node | None:
    """The convolution or linear layer that nothing but this batch normalisation follows."""
    module, source = steps.modules.get(str(node.target)), node.args[0] if node.args else None
    if node.op != "call_module" or not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        return None
    if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
        return None
    before = steps.modules[str(source.target)]
    return source if find_rule(before) in (RULES[nn.Conv2d], RULES[nn.Linear]) else None


def _trace(root: nn.Module, network: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(root)
    except Exception as error:  # whatever the user's forward does with a stand-in for its input
        raise TypeError(
            f"the forward of {type(network).__name__} cannot be followed ({error}); build it from modules, or register "
            "a bound for it with lipschitz_bound.register"
        ) from error


def _name(node: fx.Node) -> str:
    target = node.target if isinstance(node.target, str) else node.name
    return target.removeprefix("0.") if node.op == "call_module" and target != "0" else node.name.removeprefix("_0_")


def _refuse_shared_in_place(graph: fx.Graph, modules: dict[str, nn.Module]) -> None:
    """A value that is changed in place must not be looked at again under its old name."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    origin: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        changes = (
            bool(getattr(module, "inplace", False) or node.kwargs.get("inplace") is True)
            or node.target in IN_PLACE
            or (node.op == "call_method" and str(node.target).endswith("_"))
            or (node.target in MODULE_OF and any(arg is True for arg in node.args[1:]))
        )
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        views = changes or type(module) in VIEWS or METHODS.get(str(node.target), node.target) in VIEWS
        origin[node] = origin.get(source, source) if source is not None and views else node
        if not changes or source is None:
            continue
        for other, root in list(origin.items()):
            late = [user for user in other.users if order[user] > order[node]]
            if other is not node and root is origin[node] and late:
                raise TypeError(
                    f"{_name(node)}: changes in place a value that {_name(late[0])} uses later; write inplace=False"
                )
