"""Promises that every function makes about its arguments, checked on one sample call of each."""

import inspect
import math

import pytest
import torch

from nbcourse.functional import aggregation, arguments

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


def test_every_public_function_has_a_call_or_a_reason_to_have_none():
    called = {call.function for call in CALLS.values()}
    excused = {function for functions in WITHOUT_CALL.values() for function in functions}
    missing = public_functions() - called - excused
    assert not missing, f"add a Call to contracts.py for {sorted(f.__name__ for f in missing)}"
    assert called | excused <= public_functions()
    assert not called & excused


class TestWhatTheMaskHides:
    @pytest.mark.parametrize("garbage", GARBAGE)
    @pytest.mark.parametrize(("name", "argument"), every("hidden"))
    def test_changes_neither_value_nor_gradient(self, name, argument, garbage):
        call = CALLS[name]
        poisoned = {argument: call.tensors[argument].masked_fill(~call.counted, garbage)}
        same(call.visible(**poisoned), call.visible())
        if call.smooth:
            same(gradients(call, **poisoned), gradients(call))

    @pytest.mark.parametrize("garbage", GARBAGE)
    @pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.hidden])
    def test_changes_nothing_in_all_arguments_at_once(self, name, garbage):
        call = CALLS[name]
        poisoned = {a: call.tensors[a].masked_fill(~call.counted, garbage) for a in call.hidden}
        same(call.visible(**poisoned), call.visible())
        if call.smooth:
            same(gradients(call, **poisoned), gradients(call))

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

    @pytest.mark.parametrize("variant", ["one column", "one row less", "transposed", "extra axis"])
    @pytest.mark.parametrize(("name", "argument"), once("tensors", "flags"))
    def test_a_wrong_shape_is_refused_by_name(self, name, argument, variant):
        call = CALLS[name]
        straight = (call.tensors | call.flags)[argument]
        wrong = {
            "one column": lambda x: x[..., :1],
            "one row less": lambda x: x[:-1],
            "transposed": lambda x: x.T if x.dim() > 1 else x[:, None],
            "extra axis": lambda x: x[..., None],
        }[variant](straight)
        if len(call.tensors | call.flags) == 1 and wrong.dim() == 1:
            return  # an argument on its own may have any length
        with pytest.raises(ValueError, match=argument) as refused:
            call(**{argument: wrong})
        if argument != next(iter(call.tensors)):  # the first is what the others are held against
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

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
    @pytest.mark.parametrize(
        ("name", "argument"),
        [(n, a) for n, a in every("flags") if CALLS[n].flags[a].dtype == torch.bool],
    )
    def test_a_mask_of_numbers_is_refused_by_name(self, name, argument, dtype):
        call = CALLS[name]
        with pytest.raises(ValueError, match=rf"{argument} has .*{dtype}, expected .*torch.bool"):
            call(**{argument: call.flags[argument].to(dtype)})

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
    @pytest.mark.parametrize(("name", "argument"), once("tensors"))
    def test_a_dtype_without_fractions_is_refused_by_name(self, name, argument, dtype):
        call = CALLS[name]
        with pytest.raises(ValueError, match=f"{argument} has dtype {dtype}"):
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
    @pytest.mark.parametrize("dtype", HALF)
    @pytest.mark.parametrize("name", CALLS)
    def test_half_precision_is_computed_in_float32(self, name, dtype):
        call = CALLS[name]
        half = {a: x.to(dtype) for a, x in call.tensors.items()}
        exact = call(**{a: x.double() for a, x in half.items()})
        for found, truth in zip(call(**half), exact, strict=True):
            assert found.dtype == torch.float32
            torch.testing.assert_close(found.double(), truth, rtol=2e-5, atol=2e-6)

    @pytest.mark.parametrize("dtype", HALF)
    @pytest.mark.parametrize(("name", "argument"), every("smooth"))
    def test_a_half_precision_leaf_still_receives_its_gradient(self, name, argument, dtype):
        call = CALLS[name]
        leaf = call.tensors[argument].to(dtype).requires_grad_()
        (found,) = torch.autograd.grad(sum(x.sum() for x in call.visible(**{argument: leaf})), leaf)
        wide = leaf.detach().double().requires_grad_()
        (truth,) = torch.autograd.grad(sum(x.sum() for x in call.visible(**{argument: wide})), wide)
        assert found.dtype == dtype
        coarse = torch.finfo(dtype).eps
        torch.testing.assert_close(found.double(), truth, rtol=2 * coarse, atol=coarse)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", CALLS)
    def test_single_and_double_stay_what_they_are(self, name, dtype):
        call = CALLS[name]
        for x in call(**{a: x.to(dtype) for a, x in call.tensors.items()}):
            assert x.dtype == dtype

    @pytest.mark.parametrize("name", CALLS)
    def test_single_agrees_with_double(self, name):
        call = CALLS[name]
        single = call(**{a: x.float() for a, x in call.tensors.items()})
        for found, truth in zip(single, call(), strict=True):
            torch.testing.assert_close(found.double(), truth, rtol=2e-5, atol=2e-6)


class TestSameShape:
    def test_names_the_argument_that_does_not_fit_and_the_one_it_was_measured_against(self):
        with pytest.raises(
            ValueError, match=r"^gain has shape \(2, 1\), expected \(2, 3\) as loss has$"
        ):
            arguments.same_shape(loss=torch.zeros(2, 3), gain=torch.zeros(2, 1))

    def test_names_what_is_not_a_tensor(self):
        with pytest.raises(ValueError, match=r"^gain is a list, expected a torch tensor$"):
            arguments.same_shape(loss=torch.zeros(2), gain=[0.0, 0.0])

    def test_names_the_integer(self):
        with pytest.raises(ValueError, match=r"^gain has dtype torch.int64, expected a floating"):
            arguments.same_shape(loss=torch.zeros(2), gain=torch.tensor([0, 1]))

    def test_widens_only_half_precision(self):
        dtypes = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
        widened = arguments.same_shape(**{str(d): torch.zeros(2, dtype=d) for d in dtypes})
        assert [x.dtype for x in widened] == [torch.float32] * 3 + [torch.float64]

    def test_keeps_order_values_and_the_graph(self):
        first = torch.tensor([1.5, 2.0], dtype=torch.bfloat16, requires_grad=True)
        second = torch.tensor([3.0, 4.0])
        left, right = arguments.same_shape(first=first, second=second)
        left.sum().backward()
        assert left.tolist() == [1.5, 2.0]
        assert right is second
        assert first.grad.tolist() == [1.0, 1.0]


class TestBooleanMask:
    like = torch.zeros(2, 3)

    def test_accepts_a_boolean_of_the_same_shape(self):
        arguments.boolean_mask(torch.ones(2, 3, dtype=torch.bool), like=self.like, name="x")

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            ([True], "^mask is a list, expected a torch tensor$"),
            (torch.ones(2, 3), r"^mask has dtype torch.float32, expected torch.bool$"),
            (
                torch.ones(3, dtype=torch.bool),
                r"^mask has shape \(3,\), expected \(2, 3\) as x has$",
            ),
        ],
    )
    def test_says_what_came_and_what_was_expected(self, mask, message):
        with pytest.raises(ValueError, match=message):
            arguments.boolean_mask(mask, like=self.like, name="x")


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [((2,), "BT", r"\(B, T\)"), ((2, 3), "B", r"\(B,\)"), ((2, 3, 4), "BT", r"\(B, T\)")],
)
def test_dimensions_names_the_axes_it_wants(shape, axes, expected):
    with pytest.raises(ValueError, match=f"^x has shape .*, expected {expected}$"):
        arguments.dimensions(torch.zeros(shape), axes, name="x")
    arguments.dimensions(torch.zeros(shape), "ABCD"[: len(shape)], name="x")


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_bounds_refuse_what_is_outside_and_nan(value):
    with pytest.raises(ValueError, match=r"^gamma is .*, expected a number from 0 to 1$"):
        arguments.Bounds(0, 1).check(value, name="gamma")


@pytest.mark.parametrize("value", [0, 0.0, 0.5, 1, 1.0])
def test_bounds_include_both_ends(value):
    arguments.Bounds(0, 1).check(value, name="gamma")


def test_bounds_may_leave_out_the_least():
    above = arguments.Bounds(1, 3, above=True)
    above.check(3, name="c")
    with pytest.raises(ValueError, match=r"^c is 1, expected a number above 1 and at most 3$"):
        above.check(1, name="c")
    with pytest.raises(ValueError, match=r"^c is 1, expected a number above 1$"):
        arguments.Bounds(1, above=True).check(1, name="c")
    with pytest.raises(ValueError, match=r"^c is -1, expected a number of at least 0$"):
        arguments.Bounds(0).check(-1, name="c")


def test_a_bounded_function_checks_what_its_annotations_say():
    @arguments.bounded
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
