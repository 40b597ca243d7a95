"""Which methods have the weights that `ratio` reads: a clip, a cap, a mask, a gate, or none.

A clip that is not there is said, too, and of weights that fit no family some are shown instead of
an interval.
"""

import math
from collections.abc import Iterator
from typing import Any

from nbcourse.examine.ratio import DISTANCES, RATIOS, SIGNS, Clip, Side

OF_OLD, OF_SAMPLER = "π/π_old", "π_old/π_sampler"
WHOSE = {
    "token": "its ratio {of}",
    "product": "the product of the ratios {of} over the response",
    "geometric": "the geometric mean of the ratios {of} over the response",
    "arithmetic": "the mean of the ratios {of} over the response",
    "prefix": "the product of the ratios {of} up to it",
    "other": "the ratios {of} of its response",
}
DECIDED = {
    "tv": "its probability has {moved} by more than {value:.3g}",
    "kl": "its probability has {moved} and the binary KL(π_old‖π) is above {value:.3g}",
    "reverse kl": "its probability has {moved} and the binary KL(π‖π_old) is above {value:.3g}",
    "larger kl": "its probability has {moved} and the larger binary KL is above {value:.3g}",
}
GUARD = math.log(5)  # log-ratio that no trust region is as large as
SEEN = "Its weights fit no family known here:"
MOVED = {1: "risen", -1: "fallen"}
BEYOND = {1: "above", -1: "below"}
OF_WEIGHTS = (  # names that also a weight for the policy that sampled goes by
    *("bound-on-the-wrong-side", "map-unfitted", "mask-by-token", "probability-mask"),
    *("ratio-mask", "sequence-mask"),
)
Named = Iterator[tuple[str, dict[str, Any]]]


def said(clip: Clip, of: str = OF_OLD, *, held: bool = False) -> str:
    """Its clip in a sentence or a few, or that there is none.

    Args:
        clip: of the loss, or of a weight for the policy that sampled.
        of: the ratio that it is read by.
        held: whether a penalty beside it depends on that ratio as well.
    """
    subject = "" if of == OF_OLD else " of the sampler's weight"
    sides, parts = clip.sides, [*_parts(clip)]
    if clip.whole:
        for (sign, direction), edge in clip.whole.sides.items():
            what = {"one": "the log-ratio of one token", "sum": "the sum of the log-ratios"}
            by = what.get(clip.whole.by, "the mean log-ratio")
            text = f"a response is left out whole where {by} is {BEYOND[direction]} {edge:.3g}"
            parts.append((text, SIGNS[sign]))
    follows = WHOSE[clip.level].format(of=of)
    if clip.pulled == "everywhere":
        return (
            f"No clip{subject}: a penalty draws a token back, by the distance of {follows} from 1."
        )
    if clip.free and clip.seen:
        return (
            f"No clip{subject}: no ratio takes a token's gradient or bounds it. {SEEN} {clip.seen}."
        )
    if {side.kind for side in sides.values()} <= {"kept", "silent"} and not clip.whole:
        silent = [SIGNS[sign] for sign, _ in sides if sides[sign, 1].kind == "silent"]
        nothing = f" With {silent[0]} it counts nothing." if silent else ""
        if not any(slope > 0 or slope < 0 for slope in clip.slopes.values()):
            still = f"what a token counts does not depend on {of}"
            if held:
                still = f"nothing but a penalty depends on {of}"
            return f"No ratio and no clip{subject}: {still}.{nothing}"
        return f"No clip{subject}: a token counts by {follows}, however large or small.{nothing}"
    return f"Clip{subject}, by {follows}: {'; '.join(_merged(parts))}."


def _parts(clip: Clip) -> Iterator[tuple[str, str]]:
    """What is said of each side, and with which advantages it is so."""
    for (sign, direction), side in clip.sides.items():
        if text := _part(direction, side):
            yield text, SIGNS[sign]
    if clip.seen:
        yield f"weights that fit no family known here ({clip.seen})", ""


def _part(direction: int, side: Side) -> str:
    if side.kind == "lost" and side.by == "ratio":
        return f"no gradient {BEYOND[direction]} {side.edge:.5g}"
    if side.kind == "lost" and side.by in DISTANCES:
        where = DECIDED[side.by].format(moved=MOVED[direction], value=side.value)
        return f"no gradient where {where}"
    if side.kind == "held":
        word = "cut at" if direction > 0 else "raised to"
        far = "" if is_bound(side) else f" {BEYOND[direction]} {side.edge:.4g}"
        return f"{word} {side.value:.4g}{far}"
    if side.kind == "freed":
        return f"the same up to {side.edge:.4g}, and the ratio beyond"
    if side.kind == "silent":
        return "nothing at any ratio"
    if side.kind == "gate":
        return f"a sigmoid gate of temperature {side.value:.3g}"
    return "ever less above 1" if side.kind == "fades" else ""


def _merged(parts: list[tuple[str, str]]) -> list[str]:
    """What is the same for advantages of both signs once."""
    found: dict[str, list[str]] = {}
    for text, sign in parts:
        found.setdefault(text, []).append(sign)
    return [
        f"{text} {'whatever the sign of A' if len({*signs}) > 1 else 'with ' + signs[0]}"
        if signs[0]
        else text
        for text, signs in found.items()
    ]


def is_bound(side: Side) -> bool:
    """Whether a weight that stays at a value is the ratio, cut there."""
    return side.kind == "held" and math.isclose(side.value, side.edge, rel_tol=1e-3)


# ---------------------------------------------------------------- what goes by a name


def names(clip: Clip) -> Named:
    """Methods and mistakes that have these weights, with the numbers of their sentences."""
    sides = clip.sides
    if clip.pulled == "everywhere":
        at = {ratio: place for place, ratio in enumerate(RATIOS)}
        better = [clip.positive[at[ratio]] for ratio in (1.1, 1.5)]
        worse = [clip.negative[at[ratio]] for ratio in (0.9, 0.5)]
        yield "soft-clip:penalty", {"better": better, "worse": worse}
        return
    gates = {sign: sides[sign, 1] for sign in SIGNS if sides[sign, 1].kind == "gate"}
    if gates:
        taus = ", ".join(f"{gate.value:.3g} with {SIGNS[sign]}" for sign, gate in gates.items())
        yield "soft-clip:gate", {"temperatures": taus}
    elif any(side.kind == "fades" for side in sides.values()):
        near, far = clip.positive[-3], clip.positive[-2]
        yield "soft-clip", {"near": near, "far": far}
    if any(side.kind == "lost" and side.by in DISTANCES for side in sides.values()):
        yield "probability-mask", {}
    if edges := [side.edge for side in sides.values() if side.kind == "freed"]:
        yield "bound-on-the-wrong-side", {"edge": edges[0]}
    if clip.seen:
        yield "map-unfitted", {"seen": clip.seen}
    yield from _bounds(clip)
    yield from _lost(clip)
    if clip.whole:
        code = "mask-by-token" if clip.whole.token_by_token else "sequence-mask"
        yield code, {}


def _bounds(clip: Clip) -> Named:
    """Weights that are held at a value, where no token loses its gradient."""
    held = {
        direction: side
        for direction in (1, -1)
        if (side := clip.sides[1, direction]).kind == "held"
        and clip.sides[-1, direction].kind == "held"
        and is_bound(side)
        and math.isclose(clip.sides[-1, direction].value, side.value, rel_tol=1e-3)
    }
    numbers = {"cap": held[1].value if 1 in held else 0.0}
    numbers["floor"] = held[-1].value if -1 in held else 0.0
    if held:
        one = "ratio-capped" if 1 in held else "ratio-floored"
        yield "ratio-bounded" if len(held) == 2 else one, numbers
    elif any(
        side.kind == "held"  # but not a cap on the side that a mask by probability leaves open
        and not (is_bound(side) and clip.sides[-sign, direction].by in DISTANCES)
        for (sign, direction), side in clip.sides.items()
    ):
        yield "clip-kept", {}


def _lost(clip: Clip) -> Named:
    """Where tokens lose their gradient by their ratio, and on which side they should not."""
    lost = {
        place for place, side in clip.sides.items() if side.kind == "lost" and side.by == "ratio"
    }
    wrong, right = lost & {(1, -1), (-1, 1)}, lost & {(1, 1), (-1, -1)}
    lower, upper = clip.bounds
    guarded = {place for place in wrong if abs(math.log(clip.sides[place].edge)) > GUARD}
    if guarded and not (wrong == {(-1, 1)} and (-1, -1) in right) and not _masked(clip, wrong):
        yield "ratio-guard", {"places": _told(clip, guarded)}
        wrong -= guarded
    if wrong and _masked(clip, wrong):
        yield "sequence-mask" if clip.of_sequence else "ratio-mask", {}
    elif wrong == {(-1, 1)} and right == {(1, 1)}:
        yield "inverted-clip", {}
    elif len(wrong) == 2 and right:
        yield "clip-without-min", {}
    elif wrong == {(-1, 1)} and (-1, -1) in right:
        yield "dual-clip", {"edge": clip.sides[-1, 1].edge}
    elif wrong:
        places = ", ".join(f"{BEYOND[direction]} with {SIGNS[sign]}" for sign, direction in wrong)
        yield "clip-wrong-side", {"places": places}
    dual = wrong == {(-1, 1)} and (-1, -1) in right
    if right and (dual or not wrong) and not _symmetric(lower, upper):
        yield "clip-asymmetric", {"lower": lower, "upper": upper}


def _masked(clip: Clip, wrong: set[tuple[int, int]]) -> bool:
    """Whether tokens that have gone too far are left out, with their losses, of either sign."""
    blind = all(clip.sides[-sign, direction].kind == "lost" for sign, direction in wrong)
    return blind and all(clip.sides[place].jumps for place in wrong)


def _told(clip: Clip, places: set[tuple[int, int]]) -> str:
    return ", ".join(
        f"{BEYOND[direction]} {clip.sides[sign, direction].edge:.3g} with {SIGNS[sign]}"
        for sign, direction in sorted(places)
    )


def _symmetric(lower: float, upper: float) -> bool:
    """Whether both ends are as far from 1, by difference or by ratio."""
    even = math.isclose(lower * upper, 1, rel_tol=1e-3)
    return even or math.isclose(upper - 1, 1 - lower, abs_tol=1e-3)
