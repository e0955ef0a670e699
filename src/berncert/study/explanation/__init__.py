"""One image explained: `explain` proves and attacks, `figure.explanation_figure` draws."""

from berncert.study.explanation.explained import Explanation, Rival, Sample, explain, read_sample

__all__ = ["Explanation", "Rival", "Sample", "explain", "read_sample"]
