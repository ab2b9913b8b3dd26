from workbench.cann_emulator.atc.fusion import Pass

GRAPH_PASSES: tuple[Pass, ...] = ()
LATE_GRAPH_PASSES: tuple[Pass, ...] = ()
