"""What a device dumps of a model while it runs: asked for by acl.json, read within bounds, in the float model's names.

dump_file    one file: a header about tensors, then their bytes
dump_folder  which files an execution left
recording    both together with the compiled graph (`atc.om_json`), as `targets.inside` calls things
run          the program that runs a set under such an acl.json
inside       the target's part of `workbench compare … om:…`
"""
