"""What a run will need, in memory and time, before any weight is loaded."""
