"""Language models of the Llama, Qwen2 and Qwen3 families: read from disk block by block, run, smoothed, quantized.

    model = open_model(folder)                          # sizes, names and files; no weights yet
    for block in blocks(model, recipe, start(model, recipe, samples)): ...

Formulas, observers and smoothing are pure functions over tensors. File formats of vendors stand in their targets;
nothing here knows a vendor's description file. Extra `[llm]`: torch, transformers, safetensors.
"""
