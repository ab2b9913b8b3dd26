"""What a service would do under a load, from the batch curve of its model: millions of simulated requests a second.

simulated = simulate(curve, settings, load, host, lengths, bins, requests=100_000, seed=0)
predicted = figures(simulated)       # a ServiceFigures, kind 'predicted'
"""

from workbench.serving_model.prediction import figures
from workbench.serving_model.simulation import Simulated, simulate

__all__ = ["Simulated", "figures", "simulate"]
