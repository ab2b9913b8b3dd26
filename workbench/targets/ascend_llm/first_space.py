"""The search space that `workbench init` writes for a language model; search_spaces/ascend-llm.yaml is the same."""

FIRST_SPACE = """\
# Recipes for W8A8 checkpoints of a language model on Ascend (msModelSlim's files, for vLLM-Ascend and MindIE).
#
# The presets are what users of the vendor's tool try first; a sweep evaluates them before anything else, in full, and
# holds what it finds against the best of them. `workbench space search_spaces/ascend-llm.yaml` explains each setting.
# q, k and v have one type, and so have gate and up: engines load them as one linear.
version: 1
target: ascend-llm

parameters:
  quantization.scheme:
    choices: [none, recipe]
  recipe.qkv:
    when: {quantization.scheme: [recipe]}
    choices: [W8A8, W8A8_DYNAMIC]
  recipe.o:
    when: {quantization.scheme: [recipe]}
    choices: [W8A8, W8A8_DYNAMIC]
  recipe.gate_up:
    when: {quantization.scheme: [recipe]}
    choices: [W8A8, W8A8_DYNAMIC]
  # down_proj reads the gated product, where the largest outliers are
  recipe.down:
    when: {quantization.scheme: [recipe]}
    choices: [W8A8, W8A8_DYNAMIC, W8A16, FLOAT]
  recipe.smoothing:
    when: {quantization.scheme: [recipe]}
    choices: ["off", m2, m4, iter_smooth, flex_smooth_quant]
  recipe.strength:
    when: {recipe.smoothing: [iter_smooth, flex_smooth_quant]}
    choices: ["off", 0.5, 0.75]
  recipe.activations:
    when: {quantization.scheme: [recipe]}
    choices: [minmax, histogram]
  recipe.weights:
    when: {quantization.scheme: [recipe]}
    choices: [minmax, mse, output_mse]
  # of so many blocks down_proj stays float: those that `workbench sensitivity` shows first
  recipe.float_down:
    when: {recipe.down: [W8A8, W8A8_DYNAMIC, W8A16]}
    choices: [0, 1, 2, 4]
  recipe.float_groups:
    when: {quantization.scheme: [recipe]}
    choices: [0, 2, 4]
  # the ranges of v0 are not those that engines need, so not beside m4
  recipe.kv_cache:
    when: {recipe.smoothing: ["off", iter_smooth, flex_smooth_quant]}
    choices: ["off", C8]

presets:
  - {name: dynamic, quantization.scheme: recipe, recipe.qkv: W8A8_DYNAMIC, recipe.o: W8A8_DYNAMIC,
     recipe.gate_up: W8A8_DYNAMIC, recipe.down: W8A8_DYNAMIC}
  - {name: static, quantization.scheme: recipe}
  - {name: static with m4, quantization.scheme: recipe, recipe.smoothing: m4}
  - {name: static with m2, quantization.scheme: recipe, recipe.smoothing: m2}
  - {name: static with float down_proj, quantization.scheme: recipe, recipe.down: FLOAT}
  - {name: static with m4 and float down_proj, quantization.scheme: recipe, recipe.smoothing: m4, recipe.down: FLOAT}
"""
