"""Huawei Ascend 910B3 through CANN 8.5. So far: what is known about its operators, for `workbench inspect`."""
