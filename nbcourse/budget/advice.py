"""What to do where this machine would be slow at a recipe."""

from nbcourse.budget import machines
from nbcourse.training.recipe import Pretraining, Recipe


def slow(recipe: Recipe | Pretraining, *, sampling: bool = True) -> list[str]:
    """What would be slow here, and what to do: a line for each; of sampling, if that is asked.

    Book: section 15.6.
    """
    lines = [_slow_products(recipe), _slow_sampling(recipe) if sampling else ""]
    return [line for line in lines if line]


def _slow_products(recipe: Recipe | Pretraining) -> str:
    precision = recipe.model.precision
    if machines.has_gpu():
        if (precision, machines.best_precision()) == ("bfloat16", "float16"):
            return "this GPU has no units for bfloat16: --set model.precision=float16 is for it"
        return ""
    if precision == "float32":
        return ""
    times = machines.slower_than_float32(precision)
    if times < 1.5:
        return ""
    return (
        f"this processor multiplies {precision} {times:.2g} times slower than float32: "
        "--set model.precision=float32 is faster here"
    )


def _slow_sampling(recipe: Recipe | Pretraining) -> str:
    """A GPU waits for one kernel after the other."""
    if isinstance(recipe, Pretraining) or recipe.rollouts.engine != "eager":
        return ""
    if recipe.model.lora_rank or not machines.has_gpu():  # with an adapter it is untried
        return ""
    return (
        "a GPU waits while tokens are sampled one by one: --set rollouts.engine=static-graphs is "
        "3 to 5 times as fast on an H100"
    )
