"""Times by a timing model: what calls cost, how long they take, and what that may be off by.

device_data   chips, constants and errors of a model that was fitted to kernels timed on such chips
kernels       what a kernel asks for, and how long it takes by that model
device_model  what that model says of itself: prices of its parts, and how far off each may be
statement     what a target states of a device that is modelled: its prices, what is open about them, costs of calls
costs         times of calls under prices, and a figure's interval by the errors of the timing model
figures       figures of timed calls and of a service with their errors
"""
