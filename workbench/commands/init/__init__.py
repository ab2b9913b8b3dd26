"""The first files of a new question: an experiment, a dataset manifest and a search space made for one model.

`data` looks at the data, `model` and `interface` at the model and the targets, `meanings` at what the one gives for the
other and at labels; `experiment`, `manifest` and `space` each write one file, and `files` puts everything in place, all
or none.
"""
