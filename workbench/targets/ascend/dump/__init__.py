"""What a device dumps of a model while it runs: asked for by acl.json, read within bounds, in the float model's names.

dump_file    which files an execution left, and one of them: a header about tensors, then their bytes
recording    both together with the compiled graph (`atc.om_json`), as `targets.inside` calls things
inside       the target's part of `workbench compare … om:…`, and the program that runs a set under such an acl.json
"""
