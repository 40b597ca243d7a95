"""Does it fit, and how long will it take: the arithmetic of a run before any weight is loaded.

Time is a roofline: no machine with these peak numbers does *this work* faster, and most are slower.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nbcourse.budget.machines import Machine, roofline
from nbcourse.budget.memory import memory_of
from nbcourse.budget.plan import Plan, setting_of
from nbcourse.budget.shapes import Shape
from nbcourse.budget.work import Work, work_of
from nbcourse.errors import UserError
from nbcourse.lm.sampling import ENGINES
from nbcourse.training.recipe import Recipe


@dataclass(frozen=True)
class Prediction:
    """What a recipe needs of a machine.

    Attributes:
        plan: the recipe, its model's shape and the length of its prompts.
        machine: on which it is to run.
        memory: bytes by phase ("sample", "consult", "learn", "evaluate", as the loop's clock calls
            them) and owner, if all responses reach `rollouts.max_new_tokens`; what a phase holds
            includes the standing bytes.
        work: FLOPs and bytes moved of an average step, by part.
    """

    plan: Plan
    machine: Machine
    memory: Mapping[str, Mapping[str, int]]
    work: Mapping[str, Work]

    @property
    def peaks(self) -> dict[str, int]:
        """Bytes needed by each phase."""
        return {phase: sum(owners.values()) for phase, owners in self.memory.items()}

    @property
    def fits(self) -> bool:
        """Whether no phase needs more than the machine has."""
        return max(self.peaks.values()) <= self.machine.memory

    @property
    def seconds(self) -> dict[str, float]:
        """Roofline of each part of a step of this size. Book: equation (eq-roofline)."""
        return {
            part: roofline(*work, self.machine, self.plan.precision)
            for part, work in self.work.items()
        }

    @property
    def hours(self) -> float:
        """Roofline of all steps, without what comes before the first one."""
        return self.plan.recipe.steps * sum(self.seconds.values()) / 3600

    @property
    def verdict(self) -> str:
        """Whether it fits; if not, what is largest and which setting would make it fit."""
        peaks, has = self.peaks, self.machine.memory
        phase = max(peaks, key=lambda name: peaks[name])
        share = f"{_gigabytes(peaks[phase])} of {_gigabytes(has)} in phase {phase!r}"
        if self.fits:
            return f"fits: {share}, {peaks[phase] / has:.0%}"
        owners = self.memory[phase]
        largest = max(owners, key=lambda name: owners[name])
        return "; ".join(
            [
                f"does not fit: {share}; the largest item is {largest}, "
                f"{_gigabytes(owners[largest])}",
                *self._advice(),
            ]
        )

    def _advice(self) -> list[str]:
        """For each setting whose phases need too much, the largest with which they do not."""
        phases = [phase for phase, bytes_ in self.peaks.items() if bytes_ > self.machine.memory]
        keys = dict.fromkeys(setting_of(self.plan, phase) for phase in phases)
        return [self._advice_on(key) for key in keys]

    def _advice_on(self, key: str) -> str:
        """What to do about `key`, a section and a key of the recipe."""
        section, name = key.split(".")

        def fits(value: int) -> bool:
            changed = getattr(self.plan.recipe, section).model_copy(update={name: value})
            recipe = self.plan.recipe.model_copy(update={section: changed})
            return all(
                sum(owners.values()) <= self.machine.memory
                for phase, owners in memory_of(replace(self.plan, recipe=recipe)).items()
                if setting_of(self.plan, phase) == key
            )

        values = range(1, self.plan.recipe.rollouts.responses)  # with all responses it does not fit
        most = bisect_left(values, True, key=lambda value: not fits(value))
        return f"lower {key} to {most}" if most else f"{key} = 1 is still too much"


def predict(
    recipe: Recipe,
    shape: Shape,
    machine: Machine,
    *,
    prompt_tokens: int,
    response_tokens: int | None = None,
) -> Prediction:
    """Memory and time of a run on one machine, before it.

    Memory is that of the worst step: all responses reach the limit. Time is an estimate, the
    roofline of a step whose prompts are all as long as the longest, whose responses all have the
    given length, and which learns from every group: no such step is faster, but one with shorter
    responses, or with groups that are skipped because all their responses earned the same, may be.

    Args:
        recipe: what is to be run.
        shape: of its model; see `shape_of`.
        machine: on which; see `measure` and `DATASHEETS`.
        prompt_tokens: P, tokens of the longest prompt.
        response_tokens: T, mean length of the responses for the time; the limit if not given.

    Raises:
        ValueError: if a length is out of range, or another package's engine is to sample.

    Book: appendix L, "What each setting saves, and what it costs".
    """
    if recipe.rollouts.engine not in ENGINES:
        raise UserError(
            f"rollouts.engine is {recipe.rollouts.engine!r}, and only this package's own engines "
            f"are predicted: {', '.join(map(repr, ENGINES))}"
        )
    limit = recipe.rollouts.max_new_tokens
    length = limit if response_tokens is None else response_tokens
    if not 1 <= length <= limit:
        raise UserError(
            f"response_tokens is {length}, expected 1 to rollouts.max_new_tokens = {limit}"
        )
    plan = Plan(recipe, shape, prompt_tokens, machine.card)
    return Prediction(plan, machine, memory_of(plan), work_of(plan, length))


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.3g} GB"
