"""The first files of a new question: an experiment, a dataset manifest and a search space made for one model.

    initialize(Path("model.onnx"), [Path("train.csv"), Path("dev.csv")], Path(), wishes=Wishes(tokenizer=…, labels=…))

What can be read off the model and the data is written with a comment saying why; what nobody can know (the order of
the classes) is asked for. The files are read back as `workbench sweep` reads them before anything appears in place.

`data` looks at the data, `model` and `interface` at the model, `meanings` at what the one gives for the other and at
labels; `experiment`, `manifest` and `space` each write one file, `targets` asks the targets, and `files` puts
everything in place, all or none.
"""

from workbench.commands.init.files import Started, Wishes, initialize

__all__ = ["Started", "Wishes", "initialize"]
