"""pyACL: the calls, their codes, buffers, loaded models, the session and its process.

Compiling is a matter of `atc`.
"""
