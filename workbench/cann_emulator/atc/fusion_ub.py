from workbench.cann_emulator.atc.fusion import Pass

UB_PASSES: tuple[Pass, ...] = ()
