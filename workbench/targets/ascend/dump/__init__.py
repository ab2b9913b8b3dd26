"""What a device dumps of a model while it runs: asked for by acl.json, read within bounds, in the float model's names.

config       acl.json that asks for it
dump_file    one file: a header about tensors, then their bytes
dump_folder  which files an execution left
om_operators the compiled graph as ATC tells of it: which nodes an operator covers, who reads whom
recording    the three together, as `targets.inside` calls things
run          the program that runs a set under such an acl.json
inside       the target's part of `workbench compare … om:…`
"""
