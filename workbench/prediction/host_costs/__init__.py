"""What serving costs this host beside the model: measured with the real service over a bundle of a probe.

    costs = host_costs(model, dataset, store)      # HostCosts; some 10 s, then from the workspace's store

One calibration serves all candidates of one model and dataset on one host: texts, tokenizer, answers, front end,
workers and their transport are the real ones; in place of the model's call, which the batch curve has, stands one whose
time is taken off.
"""
