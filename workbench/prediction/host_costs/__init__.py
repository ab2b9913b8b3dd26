"""What serving costs this host beside the model: measured with the real service over a bundle without a model.

    costs = host_costs(model, dataset, store)      # HostCosts; some 20 s, then from the store

One calibration serves all candidates of one model and dataset on one host: texts, tokenizer, answers, front end,
workers and their transport are the real ones; only the model's call is missing, which the batch curve has.
"""

from workbench.prediction.host_costs.measure import host_costs, measure_host_costs, measuring_s

__all__ = ["host_costs", "measure_host_costs", "measuring_s"]
