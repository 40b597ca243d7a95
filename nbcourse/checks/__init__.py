"""Feedback for exercises, in the notebook, at once: what is missing, and the likely mistake."""

from nbcourse.checks.sheet import Sheet as Sheet
