"""The walk through a traced network, with what is proven of each value in the place of the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from berncert.extractor.proofs.facts import RULES, Shape, find_rule
from berncert.extractor.proofs.flow import Flow
from berncert.extractor.proofs.gains import Gains
from berncert.extractor.proofs.steps import Steps, kind_of
from berncert.extractor.proofs.tracing import name_of, require_same, trace


@dataclass(frozen=True)
class Step:
    """One step of the network with the value it yields, for the table."""

    name: str
    kind: str
    own: Gains | None
    """None for a step that joins several values."""
    flow: Flow


def walk(network: nn.Module, shape: Shape, norms: tuple[float, ...], unit: float) -> Iterator[Step]:
    """Every step of the network with what is proven of it, the last of which is the network's value."""
    root = nn.Sequential(network)  # so that a single layer is traced as a layer
    graph = trace(root)
    values: dict[fx.Node, Any] = {}
    steps = Steps(root, unit)
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
        name = name_of(node)
        args = fx.node.map_arg(node.args, values.__getitem__)
        kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
        try:
            values[node], kind, own = steps.take(node, args, kwargs)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from error
        except (AttributeError, IndexError, KeyError, RuntimeError) as error:
            raise TypeError(f"{name}: this step cannot be followed ({error}); register the module around it") from error
        layer = _normalised_layer(node, steps, values)
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
    require_same(root, graph, shape)


def _normalised_layer(node: fx.Node, steps: Steps, values: dict[fx.Node, Any]) -> fx.Node | None:
    """The convolution or linear layer that nothing but this batch normalisation follows."""
    module, source = steps.modules.get(str(node.target)), node.args[0] if node.args else None
    if node.op != "call_module" or not isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        return None
    if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
        return None
    before = steps.modules[str(source.target)]
    by_channel = find_rule(before) is RULES[nn.Conv2d] or values[source].shape == (module.num_features,)
    return source if by_channel and find_rule(before) in (RULES[nn.Conv2d], RULES[nn.Linear]) else None
