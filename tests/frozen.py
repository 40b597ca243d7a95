"""Imported last by a process that forks: what all need of whom it forks is done here, once.

What was imported is not looked through again for garbage, and how fast this machine is, which the
plan of a run asks, is measured here and not by each process for itself.
"""

import gc

from nbcourse.budget import machines

assert machines.this_machine().speed["float32"] > 0
gc.collect()
gc.freeze()
