"""The life of a run: records, checkpoints, evaluation, comparison."""
