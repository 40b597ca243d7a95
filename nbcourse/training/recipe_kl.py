"""The table `kl` of a recipe: where the penalty goes decides what else the table may say."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator

from nbcourse.functional.kl import ESTIMATORS, WEIGHTS
from nbcourse.training.algorithms import ROW, SURROGATE_ESTIMATORS, Algorithm, Penalty
from nbcourse.training.recipe_sections import (
    ONE_UPDATE,
    AtLeastOne,
    NonNegative,
    Positive,
    Rule,
    Section,
)

PRODUCTS = ("prefix", "sequence")  # weights that are products of ratios, and may overflow


class KLSection(Section):
    """The KL to the model as it was before reinforcement learning."""

    beta: NonNegative = Field(
        0.0,
        description="price of a nat; in the surrogate never divided by a length (section 12.3)",
    )
    placement: Literal["reward", "advantage", "loss", "surrogate"] | None = Field(
        None,
        description="where the penalty enters (the advantage: once that is divided or whitened); "
        "the algorithm's choice if not given",
    )
    estimator: Literal[(*ESTIMATORS, "exact")] | None = Field(  # type: ignore[valid-type]
        None,
        description="if not given, the algorithm's in the loss and k3 in the surrogate; exact sums "
        "over the whole vocabulary",
    )
    recomputed: bool = Field(
        False,
        description="in the advantage: the KL of the policy that learns, computed again at each "
        "update, instead of that of the policy that sampled",
    )
    weight: Literal[(ROW, *WEIGHTS)] | None = Field(  # type: ignore[valid-type]
        None,
        description="if not given, prefix in the surrogate and row in the advantage, which is "
        "the algorithm's own ratio and clip; once the policy has moved, only prefix and sequence "
        "have the right gradient",
    )
    weight_cap: AtLeastOne | None = Field(
        2.0, description="the largest value of a weight that is a product: prefix or sequence"
    )
    controller: Literal["fixed", "adaptive"] = Field(
        "fixed", description="whether beta stays, or moves until the KL is the target"
    )
    target: Positive = Field(1.0, description="of the adaptive controller, in nats per response")
    horizon: Positive = Field(10_000.0, description="responses over which beta moves")


class Placed(Section):
    """What a table says of the penalty itself. Each placement has a class of its own.

    Its fields are the keys that have a meaning there, with the values that they may take.

    Attributes:
        unused: key → why it has no meaning there.
        wrong: key → what is said behind a value that it does not take.
    """

    unused: ClassVar[Mapping[str, str]] = {}
    wrong: ClassVar[Mapping[str, str]] = {}

    beta: float


class Nowhere(Placed):
    """There is no penalty."""

    placement: Literal["none"]


class InReward(Placed):
    """Subtracted from the rewards, before advantages are made of them."""

    unused: ClassVar = {
        "estimator": "in the reward only k1 has the right gradient",
        "weight": "with the KL in the reward nothing is weighted",
        "weight_cap": "with the KL in the reward nothing is weighted",
    }
    wrong: ClassVar = {
        "recomputed": ", but a KL in the reward is in the advantages before the first update: say "
        "kl.placement = 'advantage'"
    }

    placement: Literal["reward"]
    recomputed: Literal[False] = False


class InAdvantage(Placed):
    """Subtracted from the advantages, once these are divided or whitened."""

    unused: ClassVar = {"estimator": "in the advantage only k1 has the right gradient"}

    placement: Literal["advantage"]
    weight: Literal[(ROW, *WEIGHTS)] = ROW  # type: ignore[valid-type]
    weight_cap: float | None = None
    recomputed: bool = False


class InLoss(Placed):
    """An estimate that is differentiated as it stands."""

    unused: ClassVar = {
        "weight": "with the KL in the loss nothing is weighted",
        "weight_cap": "with the KL in the loss nothing is weighted",
        "recomputed": "with the KL in the loss it is that of the policy that learns in any case",
    }
    wrong: ClassVar = {
        "estimator": ", whose own derivative is a partial gradient: say kl.placement = 'surrogate'"
    }

    placement: Literal["loss"]
    estimator: Literal[ESTIMATORS] | None = None  # type: ignore[valid-type]


class InSurrogate(Placed):
    """A term whose derivative is the gradient of the KL."""

    unused: ClassVar = {
        "recomputed": "with the KL in the surrogate it is that of the policy that learns in any "
        "case"
    }
    wrong: ClassVar = {
        "estimator": f", expected one of {', '.join(map(repr, SURROGATE_ESTIMATORS))}: the "
        "surrogate of a biased estimate is biased",
        "weight": f", expected one of {', '.join(map(repr, WEIGHTS))}: the surrogate of the KL "
        "does not pass through that of {algorithm}",
    }

    placement: Literal["surrogate"]
    estimator: Literal[SURROGATE_ESTIMATORS] = "k3"  # type: ignore[valid-type]
    weight: Literal[WEIGHTS] = "prefix"  # type: ignore[valid-type]
    weight_cap: float | None = None

    @field_validator("weight")
    @classmethod
    def _of_a_divergence(cls, weight: str, info: ValidationInfo) -> str:
        if info.data.get("estimator") == "exact" and weight != "prefix":
            raise ValueError(
                ", expected 'prefix': the divergence of a state is weighted by the tokens before it"
            )
        return weight


AnyPlace = Annotated[
    Nowhere | InReward | InAdvantage | InLoss | InSurrogate, Field(discriminator="placement")
]
PLACED: TypeAdapter[Placed] = TypeAdapter(AnyPlace)
PLACES: dict[str, type[Placed]] = {
    get_args(kind.model_fields["placement"].annotation)[0]: kind
    for kind in get_args(get_args(AnyPlace)[0])
}


def placement_of(kl: KLSection, row: Algorithm) -> str:
    """Where the penalty goes: nowhere if beta is 0, and where the row has it if nothing is said."""
    return (kl.placement or row.kl) if kl.beta > 0 else "none"


def penalty_of(kl: KLSection, row: Algorithm) -> Penalty:
    """The penalty that the table asks for, with what is usual for the row and the placement."""
    placed = _placed(kl, placement_of(kl, row)).model_dump(exclude_none=True)
    if placed.get("weight") not in PRODUCTS:
        placed.pop("weight_cap", None)
    return Penalty(**{"estimator": row.kl_estimator, **placed})


def _placed(kl: KLSection, placement: str) -> Placed:
    """The keys that have a meaning there; of the others, `unused` tells."""
    known = PLACES[placement].model_fields
    said = {key: value for key, value in kl if key in known and value is not None}
    return PLACED.validate_python({**said, "placement": placement})


def unused(kl: KLSection, row: Algorithm, *, one_update: bool) -> Iterator[Rule]:
    """The keys that a run would not look at."""
    if kl.beta == 0:
        others = set(KLSection.model_fields) - {"beta"}
        yield kl, others, "kl.beta is 0, so there is no KL penalty"
        return
    placement = placement_of(kl, row)
    place = PLACES[placement]
    for key, reason in place.unused.items():
        yield kl, {key}, reason
    if "weight" in place.model_fields:
        weight = kl.weight or place.model_fields["weight"].default
        if weight not in PRODUCTS:
            reason = f"kl.weight is {weight!r}, which is not a product of ratios"
            yield kl, {"weight_cap"}, reason
    if placement == "advantage" and one_update:
        yield kl, {"recomputed"}, ONE_UPDATE
    if kl.controller == "fixed":
        yield kl, {"target", "horizon"}, "kl.controller is 'fixed'"


def impossible(kl: KLSection, row: Algorithm, name: str, *, responses: int) -> Iterator[str]:
    """Values that do not go together in the table, with the row of this name, or with a batch."""
    placement = placement_of(kl, row)
    if kl.beta > 0 and placement == "none":
        yield (
            f"kl.beta is {kl.beta:g}, but {name} was published without a KL penalty: say "
            "kl.placement = 'reward', 'advantage', 'loss' or 'surrogate'"
        )
    if placement == "reward" and not row.needs("rewards"):
        yield (
            f"kl.placement is 'reward', but the advantages of {name} are made of the rewards of "
            "steps: say kl.placement = 'advantage', 'loss' or 'surrogate'"
        )
    try:
        _placed(kl, placement)
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][-1])
            own = problem.get("ctx", {}).get("error")  # said by a validator
            wrong = own or PLACES[placement].wrong[key].format(algorithm=name)
            yield f"kl.{key} is {problem['input']!r}{wrong}"
    if kl.controller == "adaptive" and kl.horizon <= responses / 5:
        yield (
            f"kl.horizon is {kl.horizon:g}, expected more than a fifth of the {responses} "
            "responses of a step"
        )
