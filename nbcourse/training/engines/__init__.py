"""Who does the work: one process, several, or another library's trainer."""
