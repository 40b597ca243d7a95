"""Imported last by a process that forks: what it has imported is not looked through again."""

import gc

gc.collect()
gc.freeze()
