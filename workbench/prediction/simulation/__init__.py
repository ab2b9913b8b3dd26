"""What a service would do under a load, from the batch curve of its model: millions of simulated requests a second.

simulated = simulate(curve, settings, load, host, lengths, bins, requests=100_000, seed=0)
predicted = figures(simulated)       # a ServiceFigures, kind 'predicted', its intervals those of the simulation alone
predicted = for_a_measurement(predicted, curve, host, lengths, bins, requests=3_000, seed=0)
"""

from workbench.prediction.simulation.intervals import figures, for_a_measurement
from workbench.prediction.simulation.simulation import Simulated, simulate

__all__ = ["Simulated", "figures", "for_a_measurement", "simulate"]
