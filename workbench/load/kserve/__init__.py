"""The open inference protocol, version 2, as KServe, Triton and MLServer speak it, from the client's side.

    model = served_model("http://127.0.0.1:8000", "bert", "")       # or grpc://127.0.0.1:8001
    requests = requests_of(model, batches, wire="kserve-v2/binary")  # for `workbench.load.run_load`
    outputs = ask(model, wire, feeds)                                # one request and its answer

HTTP carries tensors as JSON, or as bytes behind it (the binary tensor data extension); gRPC carries protocol buffers.
What a server of ours speaks (POST /predict) lives in `workbench.load.requests`; how requests are timed, outside.
"""
