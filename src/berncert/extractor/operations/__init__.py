"""The operations of frozen networks. Each is one class: evaluation, shape, bound, rounding and limits side by side."""

from berncert.extractor.operations.base import Layer, Operation
from berncert.extractor.operations.combining import Add, Concatenate
from berncert.extractor.operations.distance import Distance, SortedDistance
from berncert.extractor.operations.entrywise import Activation, Celu, Clamp, Elu, Leaky, Scale, Shift, Softplus
from berncert.extractor.operations.groupwise import GroupSort, Householder, Softmax
from berncert.extractor.operations.linear import Convolution, Linear, Mean, PotentialStep
from berncert.extractor.operations.pooling import AdaptiveAverage, AdaptiveMaximum, AveragePool, MaximumPool
from berncert.extractor.operations.rearranging import Gather, Reshape

OPERATIONS: dict[str, type[Operation]] = {
    kind.__name__: kind
    for kind in (
        Activation, AdaptiveAverage, AdaptiveMaximum, Add, AveragePool, Celu, Clamp, Concatenate, Convolution, Distance,
        Elu, Gather, GroupSort, Householder, Leaky, Linear, MaximumPool, Mean, PotentialStep, Reshape, Scale, Shift,
        Softmax, Softplus, SortedDistance,
    )
}  # fmt: skip
"""By name, as files write them. Nothing else can be read from a file."""

__all__ = [
    "OPERATIONS", "Activation", "AdaptiveAverage", "AdaptiveMaximum", "Add", "AveragePool", "Celu", "Clamp",
    "Concatenate", "Convolution", "Distance", "Elu", "Gather", "GroupSort", "Householder", "Layer", "Leaky", "Linear",
    "MaximumPool", "Mean", "Operation", "PotentialStep", "Reshape", "Scale", "Shift", "Softmax", "Softplus",
    "SortedDistance",
]  # fmt: skip
