"""The page's `torch`: the class of tensors, and the functions of the module."""

import math
from collections.abc import Callable
from typing import Any

from nbcourse.classroom.page_python.arrays.arithmetic import chosen_where, mapped
from nbcourse.classroom.page_python.arrays.dtypes import (
    BFLOAT16,
    BOOLEAN,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    DType,
    of_number,
)
from nbcourse.classroom.page_python.arrays.layout import (
    broadcast,
    given_shape,
    leaves,
    shape_of,
)
from nbcourse.classroom.page_python.arrays.reductions import least_squares, named, solution
from nbcourse.classroom.page_python.arrays.shapes import Shapes, joined_along, padded, stacked
from nbcourse.classroom.page_python.arrays.storage import insist
from nbcourse.classroom.page_python.arrays.tape import Node, gradients, no_grad

# What torch has both as a function and as a method.
NAMES = """
abs add all allclose amax amin any argmax argmin argsort bitwise_and bitwise_not
bitwise_or ceil chunk clamp clip clone count_nonzero cos cumprod cumsum diag diagonal diff div dot
eq equal exp expm1 flatten flip floor floor_divide gather ge gt index_select isclose isfinite isinf
isnan le log log10 log1p log2 log_softmax logical_and logical_not logical_or logical_xor logit
logsumexp lt masked_fill masked_select matmul max maximum mean median min minimum mm movedim mul
nan_to_num narrow ne neg nonzero norm numel outer permute pow prod reciprocal relu remainder
repeat_interleave reshape roll round rsqrt scatter scatter_add sigmoid sign sin softmax sort split
sqrt square squeeze std sub sum t tanh tile topk transpose tril triu trunc unbind unflatten unique
unique_consecutive unsqueeze var
"""
FUNCTIONS = NAMES.split()


class Tensor(Shapes):
    """Numbers of one type in a shape, with the operations of torch."""

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add the gradient of this number to `grad` of every tensor that it was made of."""
        for node, found in flown(self, gradient).items():
            if (leaf := node.leaf) is not None:
                part = leaf.made(found, leaf.shape, leaf.dtype)
                leaf.grad = part if leaf.grad is None else leaf.grad + part


def flown(output: Tensor, gradient: Any = None) -> dict[Node, list[float]]:
    """The gradients of all that a tensor was made of.

    Raises:
        RuntimeError: where no gradient flows, and where a tensor is no number.
    """
    if output.node is None:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if gradient is None and output.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return gradients(output.node, [1.0] if gradient is None else gradient.values())


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers in nested lists, as a tensor.

    Raises:
        ValueError: if rows have different lengths.
        TypeError: if there is anything but numbers in the lists.
    """
    values, shape = leaves(data), shape_of(data)
    for value in values:
        if isinstance(value, str):
            raise ValueError("too many dimensions 'str'")
        if not isinstance(value, bool | int | float):
            raise TypeError(f"expected numbers, got {type(value).__name__}")
    found = dtype or max(_types(data) or [FLOAT32], key=lambda kind: kind.rank)
    made = Tensor(found.held(values), shape, found)
    return made.requires_grad_(requires_grad)


def _types(data: Any) -> list[DType]:
    """Those of the numbers and tensors in nested lists."""
    if isinstance(data, list | tuple | range):
        return [kind for part in data for kind in _types(part)]
    return [data.dtype if isinstance(data, Tensor) else of_number(data)]


def as_torch_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor as it is, or of another type; anything else as `tensor` makes it."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    return tensor(data, dtype)


def filled(
    sizes: Any, value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor that has one value everywhere."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TypeError("full(): argument 'fill_value' must be Number, not Tensor")
    shape, number = given_shape([sizes]), value.item() if isinstance(value, Tensor) else value
    found = dtype or of_number(number)
    made = Tensor(found.held([number]) * math.prod(shape), shape, found)
    return made.requires_grad_(requires_grad)


def of_size(value: float) -> Callable[..., Tensor]:
    """`torch.zeros`, `torch.ones`, `torch.empty`: the value, and sizes as one tuple or several."""

    def made(*sizes: Any, dtype: Any = FLOAT32, size: Any = None, **more: Any) -> Tensor:
        return filled(given_shape(sizes if size is None else [size]), value, dtype, **more)

    return made


def of_size_of(value: float) -> Callable[..., Tensor]:
    """`torch.zeros_like`, `torch.ones_like`, `torch.empty_like`."""
    return lambda like, dtype=None, **more: full_like(like, value, dtype, **more)


def full_like(like: Tensor, value: Any, dtype: Any = None, **more: Any) -> Tensor:
    """A value everywhere, in the shape and the type of a tensor."""
    insist("full_like", like)
    return filled(like.shape, value, dtype or like.dtype, **more)


def arange(*ends: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`arange(end)`, `arange(start, end)` or `arange(start, end, step)`."""
    numbers = [end.item() if isinstance(end, Tensor) else end for end in ends]
    if dtype is BOOLEAN:
        raise RuntimeError('"arange_cpu" not implemented for Bool')
    start, end, step = (
        (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1) if len(numbers) == 2 else numbers
    )
    whole = all([isinstance(number, int) for number in (start, end, step)])
    count = max(math.ceil((end - start) / step), 0)
    found = dtype or (INT64 if whole else FLOAT32)
    return Tensor(found.held([start + i * step for i in range(count)]), (count,), found)


def linspace(start: float, end: float, steps: int, dtype: Any = FLOAT32) -> Tensor:
    """Numbers at equal distances, the ends among them."""
    step = (end - start) / max(steps - 1, 1)
    values = [
        start + i * step if i < steps / 2 else end - (steps - 1 - i) * step for i in range(steps)
    ]
    return Tensor(dtype.held(values), (steps,), dtype)


def eye(rows: int, columns: int | None = None, dtype: Any = FLOAT32, **_: Any) -> Tensor:
    """Ones in the diagonal, zeros beside it."""
    shape = (rows, columns or rows)
    values = [i == j for i in range(shape[0]) for j in range(shape[1])]
    return Tensor(dtype.held(values), shape, dtype)


def broadcast_tensors(*tensors: Tensor) -> Any:
    """Tensors, each in the shape to which all broadcast."""
    shape = broadcast(*[one.shape for one in tensors])
    return tuple([one.expand(shape) for one in tensors])


def one_hot(indices: Tensor, num_classes: int = -1) -> Tensor:
    """A row for each index, with a one there."""
    count = num_classes if num_classes > 0 else int(indices.max()) + 1
    return (indices.unsqueeze(-1) == arange(count)).long()


def gradient_of(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> Any:
    """`torch.autograd.grad`: the gradients of a number, or of a tensor times `grad_outputs`.

    Raises:
        RuntimeError: where no gradient flows, and where a second derivative is asked for.
    """
    output = outputs[0] if isinstance(outputs, list | tuple) else outputs
    wanted = inputs if isinstance(inputs, list | tuple) else [inputs]
    if create_graph:
        raise RuntimeError("this page has no second derivatives: use the notebook")
    given = grad_outputs[0] if isinstance(grad_outputs, list | tuple) else grad_outputs
    found = flown(output, given)
    results: list[Any] = []
    for one in wanted:
        if one.node is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        if one.node in found:
            results.append(one.made(found[one.node], one.shape, one.dtype))
        elif allow_unused:
            results.append(None)
        else:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
    return tuple(results)


def flipped(input: Tensor, dims: Any) -> Tensor:
    """A tensor with some dimensions from behind; unlike the method, it takes no number."""
    if not isinstance(dims, list | tuple):
        raise TypeError("flip(): argument 'dims' (position 2) must be tuple of ints, not int")
    return input.flip(*dims)


Parts = named("Parts", "mantissa", "exponent")  # what `torch.frexp` returns


def frexp(numbers: Tensor) -> Any:
    """Numbers as fractions from ½ to 1 times powers of 2."""
    pairs = [math.frexp(value) for value in numbers.values()]
    mantissa = numbers.made([pair[0] for pair in pairs], numbers.shape, numbers.dtype)
    return Parts((mantissa, numbers.made([pair[1] for pair in pairs], numbers.shape, INT32)))


class Generator:
    """Random numbers, drawn when the page was made, in the order in which a check draws them.

    Args:
        drawn: of each call the function's name, and what it returned: numbers, shape and type.
    """

    def __init__(self, drawn: Any = ()) -> None:
        self.drawn = list(drawn)

    def next(self, name: str) -> Tensor:
        """What the function of this name returned next."""
        if not self.drawn:
            raise RuntimeError(f"torch.{name} has no more numbers in this page")
        function, values, shape, dtype = self.drawn.pop(0)
        if function != name:
            raise RuntimeError(f"torch.{name} is called in place of torch.{function}")
        found = getattr(torch, dtype.removeprefix("torch."))
        return Tensor(found.held(values), shape, found)


def drawing(name: str) -> Callable[..., Tensor]:
    """A function of torch that draws random numbers."""

    def drawn(*given: Any, generator: Any = None, **more: Any) -> Tensor:
        if generator is None:
            raise RuntimeError(
                f"this page draws no random numbers (torch.{name}): use the notebook"
            )
        return generator.next(name)

    return drawn


class Module:
    """What is imported by the name of a module.

    Args:
        name: as it is imported.
        contents: by their names.
    """

    def __init__(self, name: str, contents: dict[str, Any]) -> None:
        self.__name__ = name
        for key, value in contents.items():
            setattr(self, key, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"the small {self.__name__} of this page has no {name}: use the notebook"
        )


def as_function(name: str) -> Callable[..., Any]:
    """A method as a function of torch, which takes no list in place of a tensor."""
    method = getattr(Tensor, name)

    def function(*given: Any, **keywords: Any) -> Any:
        first = given[0] if given else keywords.pop("input", None)
        if not isinstance(first, Tensor) and not (name == "pow" and isinstance(given[1], Tensor)):
            raise TypeError(
                f"{name}(): argument 'input' (position 1) must be Tensor, "
                f"not {type(first).__name__}"
            )
        return method(as_torch_tensor(first), *given[1:], **keywords)

    return function


def _of_one(name: str) -> Callable[..., Any]:
    return lambda input: mapped(name, input)


functional = Module(
    "torch.nn.functional",
    {
        **{name: as_function(name) for name in ("log_softmax", "softmax", "relu", "sigmoid")},
        **{name: _of_one(name) for name in ("logsigmoid", "softplus")},
        "one_hot": one_hot,
        "pad": lambda input, pad, mode="constant", value=0.0: padded(input, pad, value or 0.0),
    },
)
torch = Module(
    "torch",
    {
        **{name: as_function(name) for name in FUNCTIONS},
        **{name: drawing(name) for name in ("rand", "randn", "randint", "randperm", "multinomial")},
        "Tensor": Tensor,
        "Generator": Generator,
        "dtype": DType,
        "bool": BOOLEAN,
        "int": INT32,
        "int32": INT32,
        "int64": INT64,
        "long": INT64,
        "bfloat16": BFLOAT16,
        "float16": FLOAT16,
        "half": FLOAT16,
        "float": FLOAT32,
        "float32": FLOAT32,
        "double": FLOAT64,
        "float64": FLOAT64,
        "inf": math.inf,
        "nan": math.nan,
        "pi": math.pi,
        "tensor": tensor,
        "as_tensor": as_torch_tensor,
        "full": filled,
        "full_like": full_like,
        "zeros": of_size(0.0),
        "ones": of_size(1.0),
        "empty": of_size(0.0),
        "zeros_like": of_size_of(0.0),
        "ones_like": of_size_of(1.0),
        "empty_like": of_size_of(0.0),
        "arange": arange,
        "linspace": linspace,
        "eye": eye,
        "flip": flipped,
        "cat": lambda tensors, dim=0: joined_along(tensors, dim),
        "stack": lambda tensors, dim=0: stacked(tensors, dim),
        "frexp": frexp,
        "ldexp": lambda input, other: input * 2.0**other,
        "where": chosen_where,
        "is_tensor": lambda value: isinstance(value, Tensor),
        "broadcast_tensors": broadcast_tensors,
        "no_grad": no_grad,
        "autograd": Module("torch.autograd", {"grad": gradient_of}),
        "linalg": Module("torch.linalg", {"solve": solution, "lstsq": least_squares}),
        "nn": Module("torch.nn", {"functional": functional}),
    },
)
