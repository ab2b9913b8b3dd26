"""What one does with the workbench, as functions; the command line and `import workbench` are the two doors to it.

Nothing here prints, reads arguments, handles signals or ends the process; `docs/api.md` says which names are stable.
"""
