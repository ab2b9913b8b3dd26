"""Huawei Ascend 910B3 through CANN 8.5: ATC compiles, pyACL runs, AMCT may calibrate."""
