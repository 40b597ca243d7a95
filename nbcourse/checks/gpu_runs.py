"""Checks of chapter 15: static memory, sums over processes, what rounding hides."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("15.2 Static memory")
def mend_the_estimate(attempt: Attempt, generator: Generator) -> None:
    parameters, frozen = 100, 30
    learning = parameters - frozen
    attempt.equal(
        attempt(parameters, frozen),
        1640,
        case="100 parameters, 30 of them frozen: 400 bytes of weights, 280 of gradients, 560 of "
        "moments, 400 of the reference",
        mistakes={
            "every number was counted with two bytes; that is the precision of the file, and in "
            "float32 a number has four": 820,
            "AdamW's two moments are missing: two numbers for each parameter that learns": 1640
            - 8 * learning,
            "four bytes for each parameter that learns are missing: it has a gradient and, with "
            "AdamW, two moments, the mean of the gradient and that of its square": 1640
            - 4 * learning,
            "frozen parameters were given gradients and moments; they have a weight only": 2000,
            "frozen parameters were given gradients; they have a weight only": 1640 + 4 * frozen,
            "the frozen parameters' own weights are missing: they never learn, but are used": (
                1640 - 4 * frozen
            ),
            "the frozen parameters are missing from weights and reference": 1640 - 8 * frozen,
            "four bytes for each parameter are missing: the reference is a whole model, frozen": (
                1640 - 4 * parameters
            ),
            "two bytes for each parameter are missing: the reference or the weights were counted "
            "as in the file": 1640 - 2 * parameters,
            "the reference never learns, and needs no gradients and moments": 1640 + 12 * learning,
        },
    )
    for _ in range(2):
        parameters = int(torch.randint(50, 100, (), generator=generator))
        frozen = int(torch.randint(1, 50, (), generator=generator))
        numbers = 0
        for parameter in range(parameters):
            numbers += 2  # in the policy and in the reference
            numbers += 3 if parameter >= frozen else 0
        attempt.equal(
            attempt(parameters, frozen),
            4 * numbers,
            case=f"{parameters} parameters, {frozen} of them frozen",
        )


def cache_of_a_model(generator: Generator) -> Numbers:
    """A decoder with shared keys and values, lengths, and the room there is."""

    def one_of(*values: int) -> int:
        return values[int(torch.randint(len(values), (), generator=generator))]

    shared = one_of(2, 4, 8)
    return {
        "layers": one_of(16, 24, 28, 36),
        "query heads": shared * one_of(3, 5, 7),
        "heads for keys and values": shared,
        "width of a head": one_of(64, 128),
        "tokens of a prompt": one_of(100, 150, 200),
        "tokens of an answer": one_of(300, 400, 500),
        "gigabytes free": one_of(15, 21, 33, 47),
    }


@EXERCISES.add("15.3 Activation memory", numbers=cache_of_a_model)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    numbers = cache_of_a_model(generator)
    layers, heads, shared, width, prompt, answer, free = numbers.values()
    columns = prompt + answer
    room = free * 1e9 / (2 * layers * shared * width * columns * 2)
    attempt.equal(
        attempt(),
        math.floor(room),
        case="your model",
        mistakes={
            "an answer has a whole number of keys and values: round down": room,
            "the number was rounded up, but the last answer does not fit": math.ceil(room),
            "keys and values are two things; only one of them was counted": math.floor(2 * room),
            "each query head was given keys and values of its own; in grouped-query attention "
            "several heads share them": math.floor(room * shared / heads),
            "four bytes for each number are float32; keys and values in bfloat16 take two": (
                math.floor(room / 2)
            ),
            "the prompt's keys and values are missing: every token that was read is kept, too": (
                math.floor(room * columns / answer)
            ),
            "a gigabyte was taken for 2³⁰ bytes": math.floor(room * 2**30 / 1e9),
            "the layers are missing: each layer has keys and values of its own": math.floor(
                room * layers
            ),
        },
        tolerance=1e-9,
    )


@EXERCISES.add("15.9 Several processes")
def micro_batches_that_add_up(attempt: Attempt, generator: Generator) -> None:
    losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    attempt.equal(
        attempt(losses, mask, 40, 6),
        torch.tensor(1.5),
        case="a micro-batch with the losses [[1, 2, 3], [4, pad, pad]] of a minibatch of 40 "
        "tokens, six processes",
        mistakes={
            "that is the mean over the tokens of this micro-batch; one with few tokens would count "
            "as much as one with many": torch.tensor(2.5),
            "the mean over processes divides by their number afterwards: with six of them a sixth "
            "of the gradient would be left": torch.tensor(0.25),
            "it was divided by the number of processes, and their mean divides once more": (
                torch.tensor(0.25 / 6)
            ),
            "each answer was averaged over its own tokens, which makes the tokens of short answers "
            "count more": torch.tensor(3.0),
            "the padding was counted": torch.tensor(4.2),
            "that is the sum over the tokens; you are asked for a mean over those of the whole "
            "minibatch": torch.tensor(10.0),
            "that is the sum over the tokens, times the processes; divide by the tokens of the "
            "minibatch": torch.tensor(60.0),
            "times the processes is right, but the mean over this micro-batch's tokens is not: in "
            "the end the means of all micro-batches are added up, of short ones and long ones "
            "alike": torch.tensor(15.0),
            "it was divided by the number of answers in the micro-batch, too; nothing that belongs "
            "to the micro-batch may divide": torch.tensor(0.75),
        },
    )
    lengths = torch.randint(1, 6, (6,), generator=generator)
    mask = torch.arange(5) < lengths[:, None]
    tokens = int(mask.sum())
    losses = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    losses = losses.masked_fill(~mask, math.nan)
    shares = [[slice(0, 3), slice(3, 4)], [slice(4, 5), slice(5, 6)]]  # process → its rows
    attempt.equal(
        attempt(losses, mask, tokens, len(shares)),
        losses[mask].sum() * len(shares) / tokens,
        case="NaN in the padding",
        mistakes={
            "the mask is multiplied in, and NaN times 0 is NaN; choose the tokens by "
            "`losses[mask]`, or use torch.where": math.nan
        },
    )
    for share in shares:
        for rows in share:
            attempt.equal(
                attempt.gradient(losses[rows], mask[rows], tokens, len(shares)),
                mask[rows].double() * len(shares) / tokens,
                case=f"the gradient of one of two processes' micro-batches, {tokens} tokens in all",
            )


@EXERCISES.add("15.6 Precision, and how this fails silently")
def steps_until_seen(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(1.5, 0.001),
        4,
        case="weight 1.5, steps of 0.001: the next bfloat16 number is 1.5078125",
        mistakes={
            "that is when the weight has reached the neighbour; its rounded value is the neighbour "
            "as soon as more than *half* the way is done": 8,
            "that many steps are not seen; the next one is": 3,
            "the distance was taken to be proportional to the weight; it is the same for all "
            "numbers between 1 and 2": 6,
            "with 11 significant bits that would be right for float16; bfloat16 has 8": 1,
            "bfloat16 has 8 significant bits, the leading one included: between 1 and 2 its "
            "numbers are 2⁻⁷ apart": 2,
            "with weights in float32 no step is lost; they add up, and eventually it shows": (
                math.inf
            ),
        },
    )
    attempt.equal(
        attempt(0.01953125, 1e-6),
        62,
        case="weight 0.01953125 = 1.25 · 2⁻⁶, steps of 1e-6",
        mistakes={
            "the exponent was rounded towards zero; log₂ of the weight is −5.68, and the power of "
            "two *below* the weight is 2⁻⁶": 123,
            "numbers between 1 and 2 are 2⁻⁷ apart; smaller ones lie closer together": 3907,
        },
    )
    for _ in range(4):
        weight = 2 ** (8 * torch.rand((), generator=generator, dtype=torch.float64) - 8)
        weight = weight.bfloat16().double()
        step = weight * 10 ** (-3 - torch.rand((), generator=generator, dtype=torch.float64))
        half_way = torch.ldexp(torch.ones_like(weight), torch.frexp(weight).exponent - 9)
        steps = half_way / step
        if abs(steps - steps.round()) < 0.02:  # rounding in float32 would decide
            step = half_way / (steps.round() + 0.5)
        attempt.equal(
            attempt(weight.item(), step.item()),
            _count_until_seen(weight, step),
            case=f"weight {weight.item():.6g}, steps of {step.item():.3g}, one by one",
        )


def _count_until_seen(weight: Tensor, step: Tensor) -> int:
    taken = 1
    while (weight + taken * step).bfloat16() == weight:
        taken += 1
    return taken


@EXERCISES.add("15.5 Time")
def half_of_the_limit(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(100.0, 50.0, 10_000.0, 1000.0),
        torch.tensor([20.0, 4.0]),
        case="N = 100, c = 50, 10,000 operations/s, 1,000 bytes/s, where memory is the limit",
        mistakes={
            "the larger of the two limits was taken; both have to be kept, so the smaller one "
            "binds": torch.tensor([50.0, -20.0]),
            "the weights have two bytes for each parameter": torch.tensor([20.0, 2.0]),
            "the two times were added; a machine computes and reads at once, and the longer one "
            "counts": torch.tensor([100 / 7, 20 / 7]),
            "the two results are in the wrong order": torch.tensor([4.0, 20.0]),
        },
        tolerance=1e-5,
    )
    attempt.equal(
        attempt(100.0, 50.0, 1600.0, 1000.0),
        torch.tensor([8.0, 1.0]),
        case="N = 100, c = 50, 1,600 operations/s, 1,000 bytes/s, where arithmetic is the limit",
        mistakes={
            "that is where keys and values weigh as much as the weights; it is half of the limit "
            "only if memory is the limit": torch.tensor([8.0, 4.0]),
            "that is where the limit itself is reached; half of it comes sooner": torch.tensor(
                [8.0, 8 / 3]
            ),
            "that is half the number of answers at which the limit is reached; tokens per second "
            "do not rise in proportion, since every answer brings its own keys and values": (
                torch.tensor([8.0, 4 / 3])
            ),
            "that is memory's limit, and arithmetic does not allow that much": torch.tensor(
                [20.0, 4.0]
            ),
            "a multiplication and an addition for each weight are two operations": torch.tensor(
                [16.0, 8 / 3]
            ),
            "the keys and values were left out where half of the limit is reached": torch.tensor(
                [8.0, 0.8]
            ),
        },
        tolerance=1e-5,
    )
    for _ in range(3):
        draws = torch.rand(4, generator=generator, dtype=torch.float64)
        machine = ((draws + 0.5) * torch.tensor([100.0, 20.0, 10_000.0, 1000.0])).tolist()
        limit, half = attempt.tensor(attempt(*machine), (2,)).tolist()
        attempt.equal(
            limit,
            _tokens_per_second(1e12, *machine),
            case="the limit, against 10¹² answers at once",
            tolerance=1e-4,
        )
        attempt.equal(
            _tokens_per_second(half, *machine),
            limit / 2,
            case="the tokens/s that your number of answers reaches, against half the limit",
            tolerance=1e-4,
        )


def _tokens_per_second(
    answers: float, parameters: float, cache: float, speed: float, bandwidth: float
) -> float:
    arithmetic = 2 * parameters * answers / speed
    memory = (2 * parameters + cache * answers) / bandwidth
    return answers / max(arithmetic, memory)
