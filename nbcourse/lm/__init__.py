"""A language model as a policy: its log-probs, its samples, and one small enough to train here."""
