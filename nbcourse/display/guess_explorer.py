"""A game: recorded runs by their curves, the reader's guesses, and the score beside a diagnosis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import HTML

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.suspects import CHECKS
from nbcourse.display.in_page import in_page
from nbcourse.mistakes.catalogue import CATALOGUE, current

DIALS = {
    "accuracy": "right answers",
    "entropy": "entropy",
    "length": "mean length",
    "kl_ref": "KL to the reference",
    "grad_norm": "gradient norm",
    "gap": "gap to the sampler",
}


def explore_guesses(
    found: Mapping[str, Evidence], results: Mapping[str, Mapping[str, Any]]
) -> HTML:
    """Guess what is wrong with each of some runs, from their curves, and see your own score.

    The reader, `diagnose` by the curves and `diagnose` with the witnesses are scored alike, on the
    runs that have been guessed: is the cause that is named first the one that was planted, and is a
    run called healthy if and only if it is. Each count comes with Wilson's interval.

    Args:
        found: run → what it left behind.
        results: run → its `cause`, None if it is healthy, and the causes that were named by
            `curves` and with the `witness`; as the benchmark records them.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a run has no result, or no witness to say what its recipe was.

    Book: section 16.10.
    """
    runs = []
    for name, evidence in found.items():
        if name not in results or not evidence.witnesses:
            raise ValueError(f"run {name!r} has no {'witness' if name in results else 'result'}")
        result = results[name]
        cause = current(result["cause"]) if result["cause"] else None
        runs.append(
            {
                "name": name,
                "recipe": _recipe(evidence),
                "dials": [[_short(row.get(dial)) for row in evidence.history] for dial in DIALS],
                "truth": cause,
                "sentence": CATALOGUE[cause].sentence if cause else "",
                **{basis: _first(result[basis]) for basis in ("witness", "curves")},
            }
        )
    groups = [{"question": c.question, "causes": c.causes} for c in CHECKS.values()]
    return in_page("guess", {"dials": list(DIALS.values()), "groups": groups, "runs": runs}, [])


def _first(names: Sequence[str]) -> str | None:
    return current(names[0]) if names else None


def _recipe(evidence: Evidence) -> str:
    facts = evidence.witnesses[0].facts
    groups = f"{len(facts['prompts'])} prompts × {facts['group_size']} in the witness"
    updates = ""
    if (made := facts["updates_expected"]) is not None:  # in all steps so far
        count = made // facts["step"]
        updates = f", {count} update{'' if count == 1 else 's'} for each batch"
    penalty = f", β = {beta:g}" if (beta := facts["penalty"]["beta"]) else ""
    return f"{facts['algorithm']}, {groups}{updates}{penalty}"


def _short(value: float | None) -> float | None:
    """Three digits, which a curve of a hundred pixels has."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")
