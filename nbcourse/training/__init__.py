"""What happens in a step: the table of algorithms, recipes, experience, and the one loop."""
