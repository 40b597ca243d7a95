"""Companion package of the book *Policy Gradients for Language Models, from a bandit to GSM8K*.

Import what you use from its subpackage, such as `from nbcourse.functional import advantages`.
"""

__version__ = "0.2.0"

EDITION = "Second edition"  # of the book; its title page and its front page say so
