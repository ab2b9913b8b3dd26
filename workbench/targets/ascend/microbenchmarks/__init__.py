"""Small measurements on a device, each of which tells one thing that a modelled clock only assumes.

python -m workbench.targets.ascend.microbenchmarks int8_gain copy_latency --to clock.json

`models` has the small models, `timing` compiles and times them through the target, `measurements` draws one figure from
several times, so that launches, casts and copies that are not asked for cancel out. What is written is read by
`workbench show --clock`.
"""
