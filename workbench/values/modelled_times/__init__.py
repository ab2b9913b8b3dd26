"""Times by a timing model: what calls cost, how long they take, and what that may be off by.

device_data   chips, constants and errors of a model that was fitted to kernels timed on such chips, and its prices
kernels       what a kernel asks for, and how long it takes by that model
statement     what a target states of a device that is modelled: its prices, what is open about them, costs of calls
figures       times of calls and of a service, with intervals by the errors of the timing model
"""
