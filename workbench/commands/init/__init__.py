"""The first files of a new question: an experiment, a dataset manifest and a search space made for one model.

    initialize(Path("model.onnx"), [Path("train.csv"), Path("dev.csv")], Path(), tokenizer=…, labels=…, name=None)

What can be read off the model and the data is written with a comment saying why; what nobody can know (the order of
the classes) is asked for. The files are read back as `workbench sweep` reads them before anything appears in place.

`splits` and `data` look at the data, `model` at the model; `experiment`, `manifest` and `space` each write one file,
and `files` puts them in place, all or none.
"""

from workbench.commands.init.files import initialize

__all__ = ["initialize"]
