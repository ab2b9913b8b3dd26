"""From a sweep's winner to production: handover, confirmation under load, acceptance, deployment files, the gate.

What a bundle is and how it is checked is a matter of `bundle`.
"""
