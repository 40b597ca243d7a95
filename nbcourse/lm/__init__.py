"""A language model as a policy: its log-probs, its samples, and one small enough to train here."""

import warnings

# Since 5.24 transformers calls it `cache`, and takes the old name too until 5.40.
warnings.filterwarnings("ignore", "`past_key_values` is deprecated", FutureWarning)
