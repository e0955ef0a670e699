"""Figure 7 as an experiment."""

from __future__ import annotations

from experiments.paper.regression import measure_curves, measure_tables
from experiments.paper.regression.plot import regression_figure
from experiments.paper.regression.tables import figure7_sections
from experiments.paper.work import Experiment, Record, Work


def measure_figure7(work: Work) -> Record:
    return {
        "curves": measure_curves.measure_curves(measure_curves.AMOUNTS[work.size]),
        "tables": measure_tables.measure_tables(measure_tables.AMOUNTS[work.size]),
    }


FIGURE7 = Experiment(
    "figure7",
    "Figure 7: over-fitted regression models, smoothed",
    """\
The paper shows one over-fitted curve and its smoothed version, which does not follow the outliers. Here that is
measured: several models, many draws, a degree that is chosen without looking at the test points, two real tables, the
rivals that anyone would try first, and proven ranges of the smoothed prediction.""",
    measure_figure7,
    figure7_sections,
    regression_figure,
)
