"""The one loop, for every algorithm and every scale."""
