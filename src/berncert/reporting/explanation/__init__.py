"""One image explained: `explain` proves and attacks, `figure.explanation_figure` draws."""

from berncert.reporting.explanation.explanation import Explanation, Rival, Sample, explain, read_sample

__all__ = ["Explanation", "Rival", "Sample", "explain", "read_sample"]
