"""Pure tensor functions: estimators, losses and divergences, one equation each.

Nothing here knows a model, a file or a state; torch is the only thing imported.
"""
