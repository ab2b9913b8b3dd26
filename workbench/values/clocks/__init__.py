"""A modelled device's clock, of which nobody knows whether it is right: what calls cost, and how long they take by any.

    statement  what a target states of a device that is modelled: its clock, what is open about it, the costs of calls
    costs      times of calls under prices
    ensemble   the clocks that may be right: ours and the data sheet's, each moved by what is not known of it
    figures    figures of timed calls and of a service under every one of them

No vendor, no emulator and no measurement is known here (`targets.base.StatesCosts`).
"""
