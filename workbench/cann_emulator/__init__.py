"""An emulator of the parts of CANN 8.5.0 that the workbench touches: `atc`, `acl`, `npu-smi`, `amct_onnx`.

It obeys the documented contract of the vendor strictly, so that what talks to it talks to the real kit unchanged.
Nobody in `workbench` imports it: it is switched on as CANN is, by its environment (`workbench emulator env`). Every
file it writes and every version file it shows says that it is emulated. How long kernels take is said by
`workbench.values.modelled_times`; `[inferred]` marks what the vendor's pages leave open.
"""
