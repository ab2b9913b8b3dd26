"""From a float graph and a record to the graph that is compiled: prepared, then QDQ, dynamic or deploy form.

Scales are chosen before and never changed here.
"""
