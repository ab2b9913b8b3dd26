"""A modelled device's clock, of which nobody knows whether it is right: what calls cost, and how long they take by any.

    statement  what a target states of a device that is modelled: its clock, what is open about it, the costs of calls
    costs      times of calls under prices, and a figure's interval by the errors of the timing model
    figures    figures of timed calls and of a service with their errors

No vendor, no emulator and no measurement is known here (`targets.base.StatesCosts`).
"""
