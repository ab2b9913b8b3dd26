"""Times by a timing model: what calls cost, how long they take, and what that may be off by.

    statement  what a target states of a device that is modelled: its prices, what is open about them, costs of calls
    costs      times of calls under prices, and a figure's interval by the errors of the timing model
    figures    figures of timed calls and of a service with their errors

No vendor, no emulator and no measurement is known here (`targets.base.StatesCosts`).
"""
