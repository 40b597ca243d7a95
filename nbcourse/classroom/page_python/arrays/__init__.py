"""A small torch in plain Python, for pages whose Python has no other.

It has the operations that the sheets, their checks and likely answers use, with torch's rules for
shapes, types, rounding and gradients, and refuses all others by name. It is compared with torch.

dtypes.py      how a type rounds, and which type two operands have together
tape.py        how gradients flow
layout.py      shapes, places of numbers, and what broadcasts
storage.py     a tensor: its numbers, read and written by indices
arithmetic.py  what is computed number by number
reductions.py  what is computed row by row
shapes.py      what only moves numbers
tensor.py      all of that in one class, and the functions of torch
"""
