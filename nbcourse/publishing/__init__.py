"""From chapters to readers: find them, run them, keep their text twins, build the static site."""
