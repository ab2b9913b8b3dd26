"""The open inference protocol, version 2, as Triton, KServe and MLServer speak it over HTTP, from the client's side.

    model = served_model("http://127.0.0.1:8000", "bert", "")
    requests = requests_of(model, samples)    # for `workbench.load.run_load`
    outputs = ask(model, next(samples))       # one request and its answer

Tensors travel as bytes behind the JSON where the server has the binary tensor data extension, else in it.
What a server of ours speaks (POST /predict) lives in `workbench.load.requests`; how requests are timed, outside.
"""
