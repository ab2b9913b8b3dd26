"""The written report: one document for those who accept a model, in Chinese or English, as Word or HTML.

`material` is what is known, `compose` makes a `document` of it (a module for each group of sections), and `files`
writes that, Word with `docx_writer`. `drawing` draws the pictures. Texts stand in English where they are used, their
Chinese in `chinese.json` (`wording`). No figure is computed here.
"""
