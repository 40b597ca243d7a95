"""Every mistake that the package can name, in one table, and what a finding of it looks like.

`examine` finds them in losses, `diagnosis` in runs, `builds` in what readers write. A mistake has
one name, one sentence, one fix and one section of the book, whoever finds it.
"""
