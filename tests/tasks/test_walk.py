"""Walks: what is right, and what the teacher does."""

import math

import pytest
import torch

from nbcourse.tasks.walk import Route, Walk

SHORT = Walk(crossings=3, blocks=2)
ROUTE = Route("aNbEcS>", "NES")
STRAIGHT = "a1a0:Nb1b0:Ec1c0:S"


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_route_and_a_walk_are_written_as_the_book_says():
    assert SHORT.walk("NES", [1, 1, 1]) == STRAIGHT
    assert SHORT.walk("NES", [1, 3, 1]) == "a1a0:Nb1b0b1b0b1b0:Ec1c0:S"
    assert Walk(crossings=8, blocks=10).walk("N" * 8, [1] * 8)[:22] == "a9a8a7a6a5a4a3a2a1a0:N"
    (route,) = SHORT.draw(1, split="train", generator=source())
    assert (
        route.prompt == "".join(f"{c}{t}" for c, t in zip("abc", route.answer, strict=True)) + ">"
    )


@pytest.mark.parametrize(
    ("response", "read", "leniently"),
    [
        (STRAIGHT, "NES", "NES"),
        ("a1a0a1a0:Nb1b0:Ec1c0c1c0:S", "NES", "NES"),  # a longer walk is as good
        ("a1a0:Wb1b0:Ec1c0:S", "WES", "WES"),
        ("a1a0:Nb1b0:E", None, "NE"),  # two crossings of three
        (STRAIGHT + "d1d0:N", None, "NESN"),
        ("a1a0:Nb1b1b0:Ec1c0:S", None, "NES"),  # a false step
        ("a1a0:Nc1c0:Ec1c0:S", None, "NES"),
        ("a1a0Nb1b0:Ec1c0:S", None, "NES"),
        (STRAIGHT + "\n", None, "NES"),
        ("NES", None, "NES"),
        ("a1a0", None, None),
    ],
)
def test_strictly_a_walk_has_no_false_step(response, read, leniently):
    assert SHORT.read(response) == read
    assert SHORT.read(response, strict=False) == leniently
    assert SHORT.rewards([response], [ROUTE]).item() == float(read == "NES")


def test_the_teacher_goes_round_and_is_lost_as_often_as_the_settings_say():
    """Each mean within four standard errors of what it is by construction."""
    task, count = Walk(again=0.6, lost=0.25), 4_000
    routes, walks = task.demonstrate(count, generator=source(), careless_share=1.0)
    rounds = torch.tensor([walk.count("0") for walk in walks]) / 5
    spread = math.sqrt(0.6) / 0.4  # of a geometric distribution
    assert rounds.mean().item() == pytest.approx(1 / 0.4, abs=4 * spread / math.sqrt(5 * count))
    asked = "".join(route.answer for route in routes)
    taken = "".join(map(task.read, walks))
    wrong = [(a, b) for a, b in zip(asked, taken, strict=True) if a != b]
    assert len(wrong) / len(asked) == pytest.approx(
        0.25, abs=4 * math.sqrt(0.25 * 0.75 / len(asked))
    )
    assert len(set(wrong)) == 12  # from each of the four to each of the others
    half = task.rewards(*reversed(task.demonstrate(count, generator=source(), careless_share=0.5)))
    expected = (1 + 0.75**5) / 2
    assert half.mean().item() == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(count))


def test_a_teacher_who_never_goes_round_walks_straight():
    routes, walks = Walk(again=0.0).demonstrate(20, generator=source())
    assert walks == [Walk().walk(route.answer, [1] * 5) for route in routes]
