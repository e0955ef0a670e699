"""The smoothed head as a module, and the sampling that makes one of any callable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from berncert.polynomial import SmoothedHead, bernstein, grid, smooth


def random_head(*shape: int, dtype: torch.dtype = torch.float64) -> SmoothedHead:
    return SmoothedHead(torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype))


def polynomial(x: Tensor) -> Tensor:
    """Two logits that Bernstein's operator knows in closed form: B(x^2) = x^2 + x (1 - x) / n."""
    return torch.stack([x[:, 0] ** 2, x.sum(1)], dim=1)


def mlp(dim: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(dim, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4)).to(dtype)


def test_the_head_tells_its_classes_dimension_and_degrees() -> None:
    head = random_head(3, 2, 5, 3)
    assert (head.classes, head.dim, head.degree) == (3, 3, (1, 4, 2))
    assert repr(head) == "SmoothedHead(classes=3, dim=3, degree=(1, 4, 2), dtype=torch.float64)"
    assert "degree=3," in repr(random_head(2, 4, 4))


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("dim", range(1, 9))
def test_every_size_gives_logits_and_gradients_of_the_right_shape(classes: int, dim: int) -> None:
    head, features = random_head(classes, *[2] * dim), torch.rand(3, dim, dtype=torch.float64)
    assert head(features).shape == (3, classes)
    assert head.gradient(features).shape == (3, classes, dim)
    assert head(features[:0]).shape == (0, classes)
    torch.testing.assert_close(head(features), bernstein.evaluate(head.coefficients, features))


@pytest.mark.parametrize("coefficient_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("feature_dtype", [torch.float32, torch.float64])
def test_features_and_coefficients_meet_in_the_wider_dtype(
    coefficient_dtype: torch.dtype, feature_dtype: torch.dtype
) -> None:
    head, features = random_head(3, 3, 2, dtype=coefficient_dtype), torch.rand(5, 2, dtype=feature_dtype)
    wider = torch.promote_types(coefficient_dtype, feature_dtype)
    exact = bernstein.evaluate(head.coefficients.double(), features.double())
    assert head(features).dtype == head.gradient(features).dtype == wider
    torch.testing.assert_close(head(features), exact.to(wider))


def test_coefficients_are_a_buffer_unless_they_are_a_parameter() -> None:
    tensor = torch.rand(2, 3, dtype=torch.float64)
    assert list(SmoothedHead(tensor).parameters()) == []
    parameter = nn.Parameter(tensor)
    head = SmoothedHead(parameter)
    assert next(head.parameters()) is parameter
    head(torch.rand(4, 1, dtype=torch.float64)).sum().backward()
    assert parameter.grad is not None


@pytest.mark.parametrize("kind", [torch.Tensor.clone, nn.Parameter])
def test_a_state_dict_round_trip_keeps_every_bit(kind: Callable[[Tensor], Tensor]) -> None:
    head = random_head(3, 2, 4)
    other = SmoothedHead(kind(torch.zeros_like(head.coefficients)))
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.coefficients, head.coefficients)


def test_an_exported_head_takes_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    head, features = random_head(3, 3, 2), torch.rand(40, 2, dtype=torch.float64)
    monkeypatch.setattr(bernstein, "CPU_BUDGET", 100)
    rows = ({0: torch.export.Dim("rows")},)
    exported = torch.export.export(head, (features[:5],), dynamic_shapes=rows).module()
    torch.testing.assert_close(exported(features), head(features))


@pytest.mark.parametrize(
    ("coefficients", "error", "message"),
    [
        (np.zeros((2, 3)), TypeError, "expected coefficients as a torch tensor, got ndarray"),
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, "expected floating coefficients, got torch.int64"),
        (torch.zeros(3), ValueError, r"at least one axis and every degree n_j >= 1, got \(3,\)"),
        (torch.zeros(0, 3), ValueError, r"K >= 1 outputs.* got \(0, 3\)"),
        (torch.zeros(2, 3, 1), ValueError, r"every degree n_j >= 1, got \(2, 3, 1\)"),
        (torch.tensor([[0.0, 1.0], [0.0, float("nan")]]), ValueError, r"expected finite .* got nan at \(1, 1\)"),
    ],
)
def test_bad_coefficients_are_explained(coefficients: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SmoothedHead(coefficients)


@pytest.mark.parametrize("shape", [(2,), (5, 3), (1, 5, 2), ()])
def test_features_of_another_shape_are_explained(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected points of shape \(N, 2\)"):
        random_head(2, 3, 3)(torch.zeros(shape))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 50))
def test_coefficients_are_the_heads_values_on_the_grid_whatever_the_batch(degrees: list[int], batch_size: int) -> None:
    smoothed = smooth(polynomial, len(degrees), degrees, points=0, batch_size=batch_size)
    ticks = [torch.arange(n + 1, dtype=torch.float64) / n for n in degrees]
    points = torch.stack(torch.meshgrid(*ticks, indexing="ij"), dim=-1)
    assert smoothed.degree == tuple(degrees)
    expected = polynomial(points.reshape(-1, len(degrees))).T.reshape(smoothed.coefficients.shape)
    torch.testing.assert_close(smoothed.coefficients, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("degree", [1, 2, 7])
def test_smoothing_squares_adds_what_bernstein_says_and_keeps_affine_logits(degree: int) -> None:
    features = torch.rand(20, 3, dtype=torch.float64)
    x = features[:, 0]
    expected = torch.stack([x**2 + x * (1 - x) / degree, features.sum(1)], dim=1)
    torch.testing.assert_close(smooth(polynomial, 3, degree)(features), expected)


def test_gradients_reach_the_parameters_of_the_head_when_asked() -> None:
    head, features = mlp(2).eval(), torch.rand(5, 2, dtype=torch.float64)
    smoothed = smooth(head, 2, 3, differentiable=True, batch_size=5)
    smoothed(features).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
    plain = smooth(head, 2, 3)
    assert not plain.coefficients.requires_grad
    torch.testing.assert_close(plain.coefficients, smoothed.coefficients)
    assert smoothed.state_dict()["coefficients"].grad_fn is None


def test_sampling_is_in_evaluation_mode_and_every_submodule_is_put_back() -> None:
    head = mlp(2).train()
    head[0].eval()
    first, second = smooth(head, 2, 3), smooth(head, 2, 3)
    assert torch.equal(first.coefficients, second.coefficients)
    assert [module.training for module in head] == [False, True, True, True]
    with pytest.raises(RuntimeError):
        smooth(head, dim=3, degree=2)
    assert head.training


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_grid_comes_in_the_dtype_of_a_modules_parameters(dtype: torch.dtype) -> None:
    assert smooth(mlp(3, dtype), 3, 2).coefficients.dtype == dtype
    assert smooth(random_head(2, 3, 3, dtype=dtype), 2, 2).coefficients.dtype == dtype
    assert smooth(polynomial, 2, 2, dtype=dtype, device="cpu").coefficients.dtype == dtype
    assert smooth(polynomial, 2, 2).coefficients.dtype == torch.float64


@pytest.mark.parametrize("head", [polynomial, nn.Linear(2, 3)])
def test_a_device_that_is_not_there_is_named(head: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="expected a device that torch knows and sees here"):
        smooth(head, 2, 2, device="nowhere")


def test_a_scikit_learn_model_can_be_smoothed() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((60, 2))
    model = LogisticRegression().fit(x, (x.sum(1) > 1).astype(int))
    smoothed = smooth(model.predict_proba, 2, 4)
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    np.testing.assert_allclose(smoothed(corners).numpy(), model.predict_proba(corners.numpy()), atol=1e-15)


def test_arrays_that_are_read_only_or_reversed_are_taken() -> None:
    constant = smooth(lambda x: np.broadcast_to(np.array([1.0, 2.0]), (len(x), 2)), 1, 2)
    assert constant.coefficients.tolist() == [[1.0] * 3, [2.0] * 3]
    assert smooth(lambda x: polynomial(x).numpy()[:, ::-1], 1, 1).coefficients.tolist() == [[0.0, 1.0]] * 2


@pytest.mark.parametrize("dim", [12, 16])
def test_many_features_work_at_degree_one(dim: int) -> None:
    corner = smooth(polynomial, dim, 1)(torch.ones(1, dim, dtype=torch.float64))
    assert corner.tolist() == [[1.0, float(dim)]]


@pytest.mark.parametrize(
    ("dim", "degree", "message"),
    [
        (10, 20, rf"got {2 * 21**10:,} of them \(at least 2 classes, 10 axes, degree at most 20\): 248,549 GiB"),
        (3000, 1, r"got about 10\^903 of them .* about 10\^895 GiB"),
        (10**6, 1, "lower the degree or the number of features"),
        (3, 10**15, "lower the degree or the number of features"),
    ],
)
def test_a_net_that_cannot_fit_is_refused_before_the_head_is_called(dim: int, degree: int, message: str) -> None:
    rows = []

    def head(x: Tensor) -> Tensor:
        rows.append(len(x))
        return polynomial(x)

    with pytest.raises(MemoryError, match=message):
        smooth(head, dim, degree, batch_size=64)
    assert rows == []


def test_the_memory_check_leaves_room_for_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 2 * 2 * 9 * 8
    monkeypatch.setattr(grid, "available_bytes", lambda device: needed)
    smooth(polynomial, 2, 2)
    monkeypatch.setattr(grid, "available_bytes", lambda device: needed - 1)
    with pytest.raises(MemoryError, match="got 18 of them"):
        smooth(polynomial, 2, 2)


@pytest.mark.parametrize(
    ("dim", "degree", "error", "message"),
    [
        (0, 3, ValueError, "expected a whole number dim >= 1, got 0"),
        (2.0, 3, ValueError, "expected a whole number dim >= 1, got 2.0"),
        (2, 0, ValueError, "expected a whole number degree >= 1, got 0"),
        (2, -1, ValueError, "expected a whole number degree >= 1, got -1"),
        (2, 1.5, ValueError, "expected a whole number degree >= 1, got 1.5"),
        (2, True, ValueError, "expected a whole number degree >= 1, got True"),
        (2, "33", ValueError, "expected a whole number degree >= 1, got '33'"),
        (2, (3, 3, 3), ValueError, r"expected one degree or 2 \(one for each axis\), got 3"),
        (2, (3, 0), ValueError, "expected a whole number degree >= 1, got 0"),
        (2, (), ValueError, "got 0"),
    ],
)
def test_bad_dimensions_and_degrees_are_explained(dim: int, degree: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        smooth(polynomial, dim, degree)


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        (lambda x: x[:, 0], ValueError, r"expected logits of shape \(9, K\) .* got \(9,\)"),
        (lambda x: x[:, :0], ValueError, r"got \(9, 0\)"),
        (lambda x: x[:4], ValueError, r"got \(4, 2\)"),
        (lambda x: x > 0.5, TypeError, "expected floating logits, got torch.bool"),
        (lambda x: x.tolist(), TypeError, "torch tensor or a numpy array, got list"),
        (lambda x: x.log(), ValueError, r"got -inf for class 0 at the point \(0.0, 0.0\)"),
        (lambda x: x / (x < 1), ValueError, r"got inf for class 1 at the point \(0.0, 1.0\)"),
        (None, TypeError, "expected a callable head .* got NoneType"),
    ],
)
def test_heads_that_answer_badly_are_explained(
    head: Callable[[Tensor], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        smooth(head, 2, 2)


def test_a_changing_number_of_classes_is_explained() -> None:
    with pytest.raises(ValueError, match="expected 5 classes as in the first batch, got 4"):
        smooth(lambda x: torch.zeros(len(x), len(x)), 2, 2, batch_size=5)


def test_options_that_cannot_work_are_explained() -> None:
    with pytest.raises(TypeError, match="numpy array, which carries no gradient"):
        smooth(lambda x: x.numpy(), 2, 2, differentiable=True)
    with pytest.raises(ValueError, match="expected a whole number batch_size >= 1, got 0"):
        smooth(polynomial, 2, 2, batch_size=0)
    with pytest.raises(TypeError, match=r"expected a floating dtype for the grid, got torch\.int64"):
        smooth(polynomial, 2, 2, dtype=torch.int64)


def test_one_output_is_a_regression() -> None:
    smoothed = smooth(lambda x: 3 * x[:, :1] - x[:, 1:] + 1, dim=2, degree=4)
    x = torch.rand(7, 2, dtype=torch.float64)
    assert smoothed.classes == 1
    torch.testing.assert_close(smoothed(x), 3 * x[:, :1] - x[:, 1:] + 1)
