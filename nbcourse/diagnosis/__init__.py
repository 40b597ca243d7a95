"""Find out what is wrong with a run from what it left behind.

A run keeps witness batches (`witness.Recorder`), from which every step between sampling and the
weights can be computed once more (`diagnose.diagnose`). `faults` plants what real trainers have got
wrong into our own loop, so that the diagnosis can be tried on runs whose fault is known.
"""
