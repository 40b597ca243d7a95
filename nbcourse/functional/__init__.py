"""Pure tensor functions: estimators, losses and divergences, one equation each.

Nothing here knows a model, a file or a state; nothing is imported but torch and annotated-types,
which holds the bounds in the signatures.
"""
