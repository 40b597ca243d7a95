"""Warm starts used again: the bits of fresh ones, only where nothing differs, never torn."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from nbcourse.lm import kept, places, tiny
from nbcourse.tasks import arithmetic
from tests import small

WARM = {"steps": 5, "batch_size": 6, "careless_steps": 2}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("NBCOURSE_WARM_STARTS", str(tmp_path / "kept"))
    return tmp_path / "kept"


def built(**changes):
    return small.learner(small.recipe(**{"warm_start": WARM, **changes}))


def same(one, two):
    pairs = zip(one.policy.named_parameters(), two.policy.named_parameters(), strict=True)
    return all(name == other and torch.equal(x, y) for (name, x), (other, y) in pairs)


def test_what_is_used_again_has_the_bits_of_a_fresh_one(place, monkeypatch, capsys):
    first, again = built(), built()
    assert (first.warm_start_found, again.warm_start_found) == (False, True)
    monkeypatch.setenv("NBCOURSE_WARM_STARTS", str(place / "elsewhere"))
    fresh = built()
    assert not fresh.warm_start_found
    assert same(first, again)
    assert same(first, fresh)
    assert not same(first, built(warm_start={"steps": 0}))
    for made in (again, fresh):
        assert not made.policy.training
        assert all(p.requires_grad for p in made.policy.parameters())


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"task": {"digits": 2}},
        {"model": {"layers": 2}},
        *(
            {"warm_start": {**WARM, **change}}
            for change in (
                {"steps": 6},
                {"batch_size": 7},
                {"learning_rate": 1e-4},
                {"careless_steps": 1},
            )
        ),
        {"warm_start": {**WARM, "careless_share": 0.1}},
    ],
    ids=str,
)
def test_whatever_makes_it_is_in_its_name(changes):
    built()
    assert not built(**changes).warm_start_found
    assert built().warm_start_found


def test_so_is_what_makes_tokens_of_the_texts(monkeypatch):
    """The same characters in another order, so that each has another number."""
    built()
    monkeypatch.setattr(arithmetic.Arithmetic, "characters", tiny.CHARACTERS[::-1])
    assert not built().warm_start_found


@pytest.mark.parametrize("name", ["_code", "version", "processor"])
def test_so_are_the_code_the_libraries_and_the_processor(name, monkeypatch):
    built()
    monkeypatch.setattr(kept, name, lambda *_: b"another")
    assert not built().warm_start_found


def test_so_is_the_class_of_the_model():
    """Another class may compute something else from the same configuration and weights."""
    policy = built().policy
    assert kept._digest(policy, ()) == kept._digest(policy, ())
    before = kept._digest(policy, ())
    policy.__class__ = type("Another", (type(policy),), {})
    assert kept._digest(policy, ()) != before


def test_so_are_threads_and_how_it_is_computed(monkeypatch):
    built()
    for name, value in (("get_num_threads", 7), ("get_float32_matmul_precision", "medium")):
        with monkeypatch.context() as patch:
            patch.setattr(torch, name, lambda value=value: value)
            assert not built().warm_start_found


def test_the_code_is_that_of_the_rooms_by_which_a_model_learns(tmp_path, monkeypatch):
    digests = []
    for text in ("a = 1", "a = 2"):
        for room in ("functional", "lm"):
            (tmp_path / room).mkdir(exist_ok=True)
            (tmp_path / room / "part.py").write_text(text)
        monkeypatch.setattr(kept.nbcourse, "__file__", str(tmp_path / "__init__.py"))
        digests.append(kept._code.__wrapped__())
    assert digests[0] != digests[1]


@pytest.mark.parametrize("damage", [b"", b"{}", None], ids=["empty", "no weights", "cut short"])
def test_a_damaged_file_is_made_anew(place, damage):
    first = built()
    (file,) = place.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-1] if damage is None else damage)
    again = built()
    assert not again.warm_start_found
    assert same(first, again)
    assert file.read_bytes() == content


def test_runs_at_the_same_time_leave_one_whole_file(place):
    model = tiny.model(tiny.tokenizer(), layers=1, width=32)
    weights = dict(model.named_parameters())
    file = place / "same.safetensors"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: kept._keep(file, weights), range(32)))
    assert list(place.iterdir()) == [file]
    assert kept._found(file, weights)


def test_what_cannot_be_kept_does_not_stop_a_run(place):
    place.write_text("a file where the folder should be")
    assert not built().warm_start_found
    assert not built().warm_start_found


def test_a_large_model_is_not_kept(place, monkeypatch):
    monkeypatch.setattr(kept, "LARGEST", 1_000)
    assert not built().warm_start_found
    assert not place.exists()


def test_doctor_says_where_they_lie(place):
    assert kept.finding().version == "0 kept"
    built()
    found = kept.finding()
    assert (found.version, found.ok) == ("1 kept", None)
    size = sum(file.stat().st_size for file in place.iterdir())
    assert found.remark.startswith(f"{size / 1e6:.1f} MB in {place}")


def test_without_a_word_of_the_environment_they_lie_beside_the_models(place, monkeypatch):
    assert places.warm_starts() == place
    monkeypatch.delenv("NBCOURSE_WARM_STARTS")
    monkeypatch.delenv("NBCOURSE_MODELS", raising=False)
    assert places.warm_starts().parent == places.cached("name").parent.parent
