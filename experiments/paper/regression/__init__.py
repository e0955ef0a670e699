"""The paper's Figure 7: over-fitted regression models, smoothed, beside rivals, with proven ranges."""
