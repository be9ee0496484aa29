"""Run folders as pictures. Only this package imports matplotlib; the command line loads it when a figure is asked for.

`charts` says what is plotted, `acceptance` draws it (one function a figure), `look` gives every figure the same
appearance and makes its bytes, `sheets` writes pictures, numbers and provenance into a folder.
"""
