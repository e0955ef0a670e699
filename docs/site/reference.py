"""The pages of the reference: every public name, from its docstring, beside those that it is used with."""

from __future__ import annotations

import berncert
import berncert.estimators

GROUPS = {
    "proving": (
        "Proving",
        "What is proven of a smoothed head or a classifier, and the methods with their options.",
        ["certify", "bounds", "Exact", "estimate", "Estimate", "Randomized", "Batch"],
    ),
    "results": (
        "Results",
        "What comes back. A `radius` is proven; what is not ends in `_estimate`.",
        [
            *("Certificates", "ImageCertificates", "Ranges", "Status", "Estimates", "ImageEstimates"),
            *("RandomizedCertificates", "AttackResults"),
        ],
    ),
    "smoothing": (
        "Smoothing",
        "From any head to its Bernstein polynomial, and how well the two agree.",
        ["smooth", "SmoothedHead", "choose_degree", "Fidelity", "SmoothingWarning"],
    ),
    "networks": (
        "Networks",
        "Classifiers of images, frozen networks and their Lipschitz bounds.",
        [
            *("Classifier", "build", "UnitCube", "freeze", "FrozenNetwork", "lipschitz_bound", "lipschitz_table"),
            "register_bound",
        ],
    ),
    "models": (
        "Models, data and training",
        "Files, data sets, recipes, and a loss for training loops of your own.",
        ["load", "save", "data", "train", "certified_loss"],
    ),
    "attacks": ("Attacks", "The limit of every proof: images that do change their class.", ["Pgd", "Fgsm"]),
}
"""File -> title, what it is about, public names of berncert in the order in which they are shown."""


def reference_pages() -> dict[str, str]:
    """File name -> Markdown; that every public name is in one of them is checked here."""
    shown = sorted(name for _, _, names in GROUPS.values() for name in names)
    if shown != berncert.__all__:
        raise ValueError(f"GROUPS must show each public name once, not {sorted(set(shown) ^ set(berncert.__all__))}")
    tables = [f"estimators.{name}" for name in berncert.estimators.__all__]
    pages = GROUPS | {"tables": ("Tables", "scikit-learn models on tables: `berncert.estimators`.", tables)}
    return {f"{file}.md": page(title, about, names) for file, (title, about, names) in pages.items()}


def page(title: str, about: str, names: list[str]) -> str:
    return "\n\n".join([f"# {title}", about, *(f"::: berncert.{name}" for name in names)]) + "\n"
