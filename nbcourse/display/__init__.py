"""Figures, explorers and source listings for the chapters.

Nothing below imports this room; matplotlib and IPython are imported only in here.
"""

from nbcourse.display.command import command
from nbcourse.display.credit_explorer import explore_credit
from nbcourse.display.curve_explorers import explore_beta, explore_group, explore_passes
from nbcourse.display.curves import controlled, draw_paired, draw_seeds
from nbcourse.display.diagrams import training_loop
from nbcourse.display.downhill_explorer import explore_downhill
from nbcourse.display.explorers import explore_baseline, explore_clip, explore_lambda
from nbcourse.display.figures import figure, show
from nbcourse.display.frozen_explorer import explore_frozen
from nbcourse.display.guess_explorer import explore_guesses
from nbcourse.display.kl_explorer import explore_kl
from nbcourse.display.length_explorer import explore_lengths
from nbcourse.display.listings import show_installation, show_source, table
from nbcourse.display.memory_explorer import explore_memory
from nbcourse.display.mismatch_explorer import explore_mismatch
from nbcourse.display.panel import training_panel
from nbcourse.display.ratios_explorer import explore_ratios
from nbcourse.display.stages_explorer import explore_stages
from nbcourse.display.suspects import show_suspects
from nbcourse.display.tokens_explorer import explore_tokens
from nbcourse.display.updates_explorer import explore_updates
from nbcourse.display.verifier_explorer import explore_verifiers

__all__ = [
    "command",
    "controlled",
    "draw_paired",
    "draw_seeds",
    "explore_baseline",
    "explore_beta",
    "explore_clip",
    "explore_credit",
    "explore_downhill",
    "explore_frozen",
    "explore_group",
    "explore_guesses",
    "explore_kl",
    "explore_lambda",
    "explore_lengths",
    "explore_memory",
    "explore_mismatch",
    "explore_passes",
    "explore_ratios",
    "explore_stages",
    "explore_tokens",
    "explore_updates",
    "explore_verifiers",
    "figure",
    "show",
    "show_installation",
    "show_source",
    "show_suspects",
    "table",
    "training_loop",
    "training_panel",
]
