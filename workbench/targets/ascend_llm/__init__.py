"""Checkpoints for language models on the vendor's cards: the quantizer's recipes in, its description and weights out.

What is quantized and how stands in `workbench.quantization.llm`; here stand the vendor's file formats and what serving
engines make of them. No search, no session.
"""
