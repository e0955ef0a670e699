"""Small tables, and points around their rows."""

from __future__ import annotations

import numpy as np
import pandas as pd


def loans(rows: int = 160, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Age and children in whole numbers, income, a debt, three kinds of housing; "yes" or "no"."""
    rng = np.random.default_rng(seed)
    age, children = rng.integers(18, 80, rows), rng.integers(0, 5, rows)
    income, debt = rng.gamma(4, 12, rows), rng.gamma(2, 5, rows)
    home = rng.integers(0, 3, rows)
    good = income - 1.6 * debt + 8 * (home == 2) - 2 * children + 0.1 * age + rng.normal(0, 5, rows) > 32
    table = pd.DataFrame({"age": age, "children": children, "income": income, "debt": debt})
    for k, name in enumerate(("rent", "family", "own")):
        table[name] = (home == k).astype(int)
    return table, np.where(good, "yes", "no")


def points_near(
    rng: np.random.Generator, x: np.ndarray, goal: np.ndarray, scale: np.ndarray, radius: float, norm: float, count: int
) -> np.ndarray:
    """Rows closer than the radius, half of them towards the goal, most at the rim."""
    steps = rng.normal(size=(count, len(x)))
    if np.isfinite(goal).all():
        steps[: count // 2] = ((goal - x) / scale) * (1 + 0.3 * steps[: count // 2])
    lengths = np.linalg.norm(steps, ord=norm, axis=1)
    shrink = radius * (1 - 1e-9) * rng.uniform(size=(count, 1)) ** (1 / 16)
    return x + steps / np.maximum(lengths, 1e-300)[:, None] * shrink * scale
