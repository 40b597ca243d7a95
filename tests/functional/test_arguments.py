"""Promises that every function makes about its arguments, checked on one sample call of each."""

import inspect
import math
from functools import cache
from typing import Annotated

import pytest
import torch
from annotated_types import Ge, Interval, Le

from nbcourse.functional import aggregation, arguments, surrogates
from nbcourse.functional.arguments import Axes
from tests.effort import case, swept

from .contracts import CALLS, GARBAGE, MASK, WITHOUT_CALL, every, once, public_functions

HALF = [torch.bfloat16, torch.float16]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    """Bit for bit, shapes and dtypes included."""
    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


def gradients(call, **changes) -> list[torch.Tensor]:
    """Gradient of a fixed combination of what is visible, with respect to each smooth argument."""
    leaves = {name: (call.tensors | changes)[name].clone() for name in call.smooth}
    for leaf in leaves.values():
        leaf.requires_grad_()
    total = 0.0
    for x in call.visible(**(changes | leaves)):
        weights = torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).view(x.shape)
        total = total + (x * weights).sum()
    return list(torch.autograd.grad(total, leaves.values()))


@cache
def undisturbed(name: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What is visible of a sample call, and its gradients: the same for all that is done to it."""
    call = CALLS[name]
    return call.visible(), gradients(call) if call.smooth else []


def test_every_public_function_has_a_call_or_a_reason_to_have_none():
    called = {call.function for call in CALLS.values()}
    excused = {function for functions in WITHOUT_CALL.values() for function in functions}
    missing = public_functions() - called - excused
    assert not missing, f"add a Call to contracts.py for {sorted(f.__name__ for f in missing)}"
    assert called | excused <= public_functions()
    assert not called & excused


class TestWhatTheMaskHides:
    @pytest.mark.parametrize("garbage", swept(GARBAGE, keep=GARBAGE[:1]))
    @pytest.mark.parametrize(("name", "argument"), every("hidden"))
    def test_changes_neither_value_nor_gradient(self, name, argument, garbage):
        call = CALLS[name]
        poisoned = {argument: call.tensors[argument].masked_fill(~call.counted, garbage)}
        same(call.visible(**poisoned), undisturbed(name)[0])
        if call.smooth:
            same(gradients(call, **poisoned), undisturbed(name)[1])

    @pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.hidden])
    def test_changes_nothing_in_all_arguments_at_once(self, name):
        call = CALLS[name]
        for garbage in GARBAGE:
            with case(garbage):
                poisoned = {
                    a: call.tensors[a].masked_fill(~call.counted, garbage) for a in call.hidden
                }
                same(call.visible(**poisoned), undisturbed(name)[0])
                if call.smooth:
                    same(gradients(call, **poisoned), undisturbed(name)[1])

    @pytest.mark.parametrize(
        ("name", "argument"), [(n, a) for n, a in every("smooth") if a in CALLS[n].hidden]
    )
    def test_receives_no_gradient(self, name, argument):
        call = CALLS[name]
        found = dict(zip(call.smooth, gradients(call), strict=True))[argument]
        assert found[~call.counted].eq(0).all()
        assert found[call.counted].ne(0).any()

    @pytest.mark.parametrize("name", [name for name, call in CALLS.items() if "mask" in call.flags])
    def test_comes_out_as_exactly_zero(self, name):
        mask = CALLS[name].flags["mask"]
        for x in CALLS[name]():
            if x.shape == mask.shape:
                assert x[~mask].eq(0).all()
                assert x[mask].ne(0).any()


class TestAMistakeIsLoud:
    @pytest.mark.parametrize(
        ("name", "argument"), [(n, a) for n, a in every("tensors") if CALLS[n].loud]
    )
    def test_a_nan_that_counts_comes_out_as_nan(self, name, argument):
        call = CALLS[name]
        poisoned = call.tensors[argument].clone()
        poisoned.view(-1)[3] = math.nan  # entry 3 counts in every sample call
        assert any(x.isnan().any() for x in call.visible(**{argument: poisoned}))

    @pytest.mark.parametrize("mode", aggregation.MODES)
    @pytest.mark.parametrize("name", ["policy_gradient", "ppo_clip", "gspo", "cispo"])
    def test_a_nan_log_prob_of_a_counted_token_reaches_the_loss(self, name, mode):
        call = CALLS[name]
        poisoned = call.tensors["log_probs"].clone()
        poisoned[1, 4] = math.nan
        (per_token,) = call(log_probs=poisoned)
        max_length = 9 if mode.endswith("-norm") else None
        assert aggregation.aggregate(per_token, MASK, mode, max_length=max_length).isnan()

    @pytest.mark.parametrize(("name", "argument"), once("tensors", "flags"))
    def test_a_wrong_shape_is_refused_by_name(self, name, argument):
        call = CALLS[name]
        straight = (call.tensors | call.flags)[argument]
        for variant, wrong in {
            "one column": straight[..., :1],
            "one row less": straight[:-1],
            "transposed": straight.T if straight.dim() > 1 else straight[:, None],
            "extra axis": straight[..., None],
        }.items():
            if len(call.tensors | call.flags) == 1 and wrong.dim() == 1:
                continue  # an argument on its own may have any length
            with case(variant):
                with pytest.raises(ValueError, match=argument) as refused:
                    call(**{argument: wrong})
                if argument != next(iter(call.tensors)):  # against the first the others are held
                    assert str(tuple(wrong.shape)) in str(refused.value)  # what came
                    assert str(tuple(straight.shape)) in str(refused.value)  # what was expected

    @pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.any_rank])
    def test_an_axis_too_many_is_refused_even_if_all_arguments_have_it(self, name):
        call = CALLS[name]
        arguments = call.tensors | call.flags
        rank = max(x.dim() for x in arguments.values())
        first = next(iter(call.tensors))
        with pytest.raises(ValueError, match=rf"^{first} has shape .*, expected \([A-Z]"):
            call(**{a: x[..., None] for a, x in arguments.items() if x.dim() == rank})

    @pytest.mark.parametrize(
        ("name", "argument"),
        [(n, a) for n, a in every("flags") if CALLS[n].flags[a].dtype == torch.bool],
    )
    def test_a_mask_of_numbers_is_refused_by_name(self, name, argument):
        call = CALLS[name]
        for dtype in (torch.int64, torch.float32, torch.uint8):
            says = rf"{argument} has .*{dtype}, expected .*torch.bool"
            with case(dtype), pytest.raises(ValueError, match=says):
                call(**{argument: call.flags[argument].to(dtype)})

    @pytest.mark.parametrize(("name", "argument"), once("tensors"))
    def test_a_dtype_without_fractions_is_refused_by_name(self, name, argument):
        call = CALLS[name]
        for dtype in (torch.int64, torch.bool, torch.complex64):
            says = f"{argument} has dtype {dtype}"
            with case(dtype), pytest.raises(ValueError, match=says):
                call(**{argument: call.tensors[argument].to(dtype)})

    @pytest.mark.parametrize(("name", "argument"), once("tensors", "flags"))
    def test_a_numpy_array_is_refused_by_name(self, name, argument):
        call = CALLS[name]
        with pytest.raises(ValueError, match=f"{argument} is a ndarray"):
            call(**{argument: (call.tensors | call.flags)[argument].numpy()})

    @pytest.mark.parametrize("argument", ["step_ends", "lengths"])
    def test_an_index_that_is_not_an_integer_is_refused(self, argument):
        call = CALLS["process_supervision"]
        with pytest.raises(ValueError, match=argument):
            call(**{argument: call.flags[argument].double()})


@pytest.mark.parametrize("name", CALLS)
def test_options_are_named_at_the_call(name):
    # only what reads like a sentence may follow the tensors: aggregate(x, mask, "token-mean")
    by_position = {"dim", "mode", "kind", "average"}
    parameters = inspect.signature(CALLS[name].function).parameters
    for option in set(CALLS[name].options) - by_position:
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY


class TestInputsAreLeftAlone:
    @pytest.mark.parametrize("name", CALLS)
    def test_no_argument_is_modified(self, name):
        call = CALLS[name]
        given = {a: x.clone() for a, x in (call.tensors | call.flags).items()}
        before = {a: x.clone() for a, x in given.items()}
        call(**given)
        same(list(given.values()), list(before.values()))

    @pytest.mark.parametrize("name", CALLS)
    def test_nothing_that_comes_out_shares_memory_with_an_argument(self, name):
        call = CALLS[name]
        owned = {x.untyped_storage().data_ptr() for x in (call.tensors | call.flags).values()}
        for x in call():
            assert x.untyped_storage().data_ptr() not in owned

    @pytest.mark.parametrize("name", CALLS)
    def test_the_layout_in_memory_does_not_matter(self, name):
        def strided(x: torch.Tensor) -> torch.Tensor:
            if x.dim() == 1:
                return torch.stack([x, x], dim=1)[:, 0]
            return x.mT.contiguous().mT

        call = CALLS[name]
        changed = {a: strided(x) for a, x in (call.tensors | call.flags).items()}
        assert not any(x.is_contiguous() for x in changed.values())
        torch.testing.assert_close(call(**changed), call())


class TestGradients:
    @pytest.mark.parametrize(
        ("name", "argument"),
        [(n, a) for n, a in every("tensors") if (n[:8], a) != ("estimate", "ref_log_probs")],
    )
    def test_reach_the_arguments_that_are_learned_and_no_other(self, name, argument):
        call = CALLS[name]
        leaf = call.tensors[argument].clone().requires_grad_()
        outputs = [x for x in call(**{argument: leaf}) if x.requires_grad]
        assert bool(outputs) == (argument in call.smooth)

    @pytest.mark.parametrize(
        "name", [name for name, call in CALLS.items() if call.smooth and call.honest]
    )
    def test_are_the_derivative_where_nothing_inside_stops_them(self, name):
        call = CALLS[name]
        leaves = [call.tensors[a].clone().requires_grad_() for a in call.smooth]
        assert torch.autograd.gradcheck(
            lambda *xs: tuple(call.visible(**dict(zip(call.smooth, xs, strict=True)))), leaves
        )


class TestPrecision:
    @pytest.mark.parametrize("name", CALLS)
    def test_half_precision_is_computed_in_float32(self, name):
        call = CALLS[name]
        for dtype in HALF:
            with case(dtype):
                half = {a: x.to(dtype) for a, x in call.tensors.items()}
                exact = call(**{a: x.double() for a, x in half.items()})
                for found, truth in zip(call(**half), exact, strict=True):
                    assert found.dtype == torch.float32
                    torch.testing.assert_close(found.double(), truth, rtol=2e-5, atol=2e-6)

    @pytest.mark.parametrize(("name", "argument"), every("smooth"))
    def test_a_half_precision_leaf_still_receives_its_gradient(self, name, argument):
        call = CALLS[name]
        for dtype in HALF:
            with case(dtype):
                leaf = call.tensors[argument].to(dtype).requires_grad_()
                (found,) = torch.autograd.grad(
                    sum(x.sum() for x in call.visible(**{argument: leaf})), leaf
                )
                wide = leaf.detach().double().requires_grad_()
                (truth,) = torch.autograd.grad(
                    sum(x.sum() for x in call.visible(**{argument: wide})), wide
                )
                assert found.dtype == dtype
                coarse = torch.finfo(dtype).eps
                torch.testing.assert_close(found.double(), truth, rtol=2 * coarse, atol=coarse)

    @pytest.mark.parametrize("name", CALLS)
    def test_single_and_double_stay_what_they_are(self, name):
        call = CALLS[name]
        for dtype in (torch.float32, torch.float64):
            with case(dtype):
                for x in call(**{a: x.to(dtype) for a, x in call.tensors.items()}):
                    assert x.dtype == dtype

    @pytest.mark.parametrize("name", CALLS)
    def test_single_agrees_with_double(self, name):
        call = CALLS[name]
        single = call(**{a: x.float() for a, x in call.tensors.items()})
        for found, truth in zip(single, call(), strict=True):
            torch.testing.assert_close(found.double(), truth, rtol=2e-5, atol=2e-6)


class TestAxes:
    @staticmethod
    @arguments.checked
    def gain(
        loss: arguments.BT,
        mask: arguments.BTMask,
        scores: arguments.B | None = None,
        *,
        longer: Annotated[torch.Tensor, Axes("B T+1")] | None = None,
        steps: Annotated[torch.Tensor, Axes("N", "integers")] | None = None,
        square: Annotated[torch.Tensor, Axes("S S")] | None = None,
    ) -> list[torch.Tensor | None]:
        return [loss, scores, longer]

    loss, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"loss": [0.0]}, "loss is a list, expected a torch tensor"),
            ({"loss": None}, "loss is a NoneType, expected a torch tensor"),
            ({"loss": torch.zeros(2)}, r"loss has shape \(2,\), expected \(B, T\)"),
            ({"loss": torch.zeros(2, 3, dtype=int)}, "loss has dtype .*, expected a floating-.*"),
            ({"mask": torch.ones(2, 3)}, "mask has dtype torch.float32, expected torch.bool"),
            ({"mask": mask[:, :1]}, r"mask has shape \(2, 1\), expected \(2, 3\) as loss has"),
            (
                {"scores": torch.zeros(3)},
                r"scores has shape \(3,\), expected \(2,\): \(B,\) where loss has \(B, T\)",
            ),
            (
                {"longer": torch.zeros(2, 3)},
                r"longer has shape \(2, 3\), expected \(2, 4\): \(B, T\+1\) where loss .*",
            ),
            ({"steps": torch.zeros(4)}, "steps has dtype torch.float32, expected integers"),
            ({"steps": mask[0]}, "steps has dtype torch.bool, expected integers"),
            ({"steps": torch.ones(4, 1, dtype=int)}, r"steps has shape .*, expected \(N,\)"),
            ({"square": torch.zeros(4, 3)}, r"square has shape \(4, 3\), expected \(S, S\)"),
        ],
    )
    def test_say_what_came_and_what_was_expected(self, wrong, message):
        with pytest.raises(ValueError, match=f"^{message}$"):
            self.gain(**{"loss": self.loss, "mask": self.mask} | wrong)

    def test_an_argument_is_checked_at_its_place_too(self):
        with pytest.raises(ValueError, match=r"^scores has shape \(3,\)"):
            self.gain(self.loss, self.mask, torch.zeros(3))

    def test_what_is_optional_may_be_none_and_what_fits_passes(self):
        fine = {"scores": None, "longer": torch.zeros(2, 4), "square": torch.zeros(4, 4)}
        assert self.gain(self.loss, self.mask, **fine)[0] is self.loss

    def test_only_half_precision_is_widened_and_keeps_its_graph(self):
        half = torch.tensor([1.5, 2.0], dtype=torch.bfloat16, requires_grad=True)
        double = torch.zeros(2, 4, dtype=torch.float64)
        loss, scores, longer = self.gain(self.loss, self.mask, half, longer=double)
        assert loss is self.loss
        assert longer is double
        assert scores.dtype == torch.float32
        scores.sum().backward()
        assert half.grad.tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision_is_widened_at_its_place_and_by_name(self, dtype):
        for x in (
            self.gain(self.loss.to(dtype), self.mask),
            self.gain(mask=self.mask, loss=self.loss.to(dtype)),
        ):
            assert x[0].dtype == torch.float32

    def test_python_says_what_is_missing_and_what_is_too_much(self):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'mask'"):
            self.gain(self.loss)
        with pytest.raises(TypeError, match="multiple values for argument 'loss'"):
            self.gain(self.loss, self.mask, loss=self.loss)
        with pytest.raises(TypeError, match="3 positional arguments but 4 were given"):
            self.gain(self.loss, self.mask, None, None)


def test_a_checked_function_still_says_what_it_takes():
    signature = inspect.signature(TestAxes.gain)
    assert list(signature.parameters) == ["loss", "mask", "scores", "longer", "steps", "square"]
    assert signature.parameters["loss"].annotation == arguments.BT


def test_a_checked_function_can_be_compiled():
    policy = [torch.full((2, 3), -1.0), torch.full((2, 3), -1.5), torch.ones(2, 3)]
    compiled = torch.compile(surrogates.ppo_clip, backend="eager", fullgraph=True)
    same([compiled(*policy, clip_low=0.1)], [surrogates.ppo_clip(*policy, clip_low=0.1)])
    slope = torch.func.grad(lambda x: surrogates.ppo_clip(x, *policy[1:], clip_low=0.1).sum())
    assert slope(policy[1]).eq(-1).all()  # the ratio is 1: ∇(−ρ A) = −A


UNIT = Interval(ge=0, le=1)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_bounds_refuse_what_is_outside_and_nan(value):
    with pytest.raises(ValueError, match=r"^gamma is .*, expected a number from 0 to 1$"):
        arguments.within(value, UNIT, name="gamma")


@pytest.mark.parametrize("value", [0, 0.0, 0.5, 1, 1.0])
def test_bounds_include_both_ends(value):
    arguments.within(value, UNIT, name="gamma")


@pytest.mark.parametrize(
    ("bounds", "outside", "inside", "words"),
    [
        (Interval(gt=1, le=3), [1, 4], 3, "a number above 1 and at most 3"),
        (Interval(gt=0, lt=1), [0, 1], 0.5, "a number above 0 and below 1"),
        (Interval(ge=0), [-1, math.nan], math.inf, "a number of at least 0"),
        (Interval(le=2), [3], -5, "a number of at most 2"),
    ],
)
def test_bounds_are_said_in_words(bounds, outside, inside, words):
    arguments.within(inside, bounds, name="c")
    for value in outside:
        with pytest.raises(ValueError, match=f"^c is {value}, expected {words}$"):
            arguments.within(value, bounds, name="c")


def test_bounds_are_those_of_the_library_alone_grouped_and_optional():
    for hint in (Annotated[int, Ge(1), Le(9)], Annotated[int, Interval(ge=1, le=9)] | None):
        assert arguments.bounds_of(hint) == Interval(ge=1, le=9)
    assert arguments.bounds_of(int | None) is None


def test_a_checked_function_checks_the_bounds_that_its_annotations_say():
    @arguments.checked
    def power(x: float, *, share: arguments.Share = 0.5, cap: arguments.AboveOne | None = None):
        return x, share, cap

    assert power(7, share=1.0, cap=None) == (7, 1.0, None)
    with pytest.raises(ValueError, match=r"^share is 2, expected a number from 0 to 1$"):
        power(7, share=2)
    with pytest.raises(ValueError, match=r"^cap is 1, expected a number above 1$"):
        power(7, cap=1)


def test_one_of_lists_the_choices():
    arguments.one_of("k1", ("k1", "k2"), name="kind")
    with pytest.raises(ValueError, match=r"^kind is 'k4', expected one of 'k1', 'k2'$"):
        arguments.one_of("k4", ("k1", "k2"), name="kind")
