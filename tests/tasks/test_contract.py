"""What training, evaluation and pretraining rely on, of every task in the table."""

import math
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
import torch
from annotated_types import Interval

from nbcourse.functional.arguments import in_words
from nbcourse.lm import tiny
from nbcourse.rows import settings_of
from nbcourse.tasks import table
from nbcourse.tasks.task import Task, check_task
from nbcourse.training.models import load_tokenizer
from nbcourse.training.own_code import OwnCode
from nbcourse.training.recipe import Pretraining, Recipe, validate
from tests import hub, small


@dataclass(frozen=True)
class Line:
    """A problem of the task that is made up here."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class Reversal(Task):
    """Letters to be said backwards: as little as a task can be, in characters of its own."""

    letters: Annotated[int, Interval(ge=1, le=6)] = 4
    held_out: ClassVar[str] = "test"
    characters: ClassVar[str | None] = "abc>"

    def draw(self, count, *, split, generator):
        if split not in ("train", "test"):
            raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
        if count < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        first = "ab" if split == "train" else "c"
        rows = torch.randint(3, (count, self.letters), generator=generator).tolist()
        words = [first[row[0] % len(first)] + "".join("abc"[i] for i in row[1:]) for row in rows]
        return [Line(f"{word}>", word[::-1]) for word in words]

    def read(self, response, *, strict=True):
        text = response if strict else response.strip()
        return text if text and {*text} <= {*"abc"} else None

    def demonstrate(self, count, *, generator):
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [problem.answer for problem in drawn]


KINDS = {**table.TASKS, "reversal": Reversal}
GARBAGE = ("", " ", "\n", "?", "none of these", "####", "#### ####", "\u202e", "#" * 1000)
COUNT = 40


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """What a task needs that is not in the package: files in GSM8K's form."""
    return str(hub.data(tmp_path_factory.mktemp("tasks") / "gsm8k", train=600, test=60))


@pytest.fixture(params=KINDS)
def kind(request, data, monkeypatch):
    """The class of each task."""
    monkeypatch.setenv("NBCOURSE_GSM8K", data)
    return KINDS[request.param]


@pytest.fixture
def task(kind):
    """Each task with its usual settings."""
    return kind()


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def splits(task):
    return {"train", task.held_out, "test"}


def recipe(kind, **task):
    """The smallest recipe of a task, whether it is in the table or not."""
    name = next(name for name, known in KINDS.items() if known is kind)
    vocabulary = {} if kind().characters else {"vocabulary": 300}
    tables = {**small.tables(model=vocabulary), "task": {"name": name, **task}}
    return validate(Recipe, tables, name="recipe", code=OwnCode(tasks={"reversal": Reversal}))


def test_the_table_holds_what_the_files_of_the_folder_define():
    """And no name is defined twice."""
    files = Path(table.__file__).parent.glob("*.py")
    modules = [import_module(f"nbcourse.tasks.{file.stem}") for file in files]
    defined = [
        entry
        for module in modules
        if module is not table
        for entry in getattr(module, "TASKS", {}).items()
    ]
    assert sorted(name for name, _ in defined) == sorted(table.TASKS)
    assert dict(defined) == table.TASKS
    assert {"arithmetic", "gsm8k", "word-problems"} <= {*table.TASKS}


def test_a_task_is_complete(kind):
    check_task(kind)
    assert kind.__doc__
    assert kind.__dataclass_params__.frozen


def made(*bases, **body):
    """A class of a reader's own, with or without what makes it a task."""
    return type("Mine", bases, {"__annotations__": {}, **body})


WHOLE = {"draw": lambda self, *a, **k: [], "read": lambda self, *a, **k: None}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (3, "is 3, expected a subclass of Task"),
        (dict, "is <class 'dict'>, expected a subclass of Task"),
        (Reversal(), "expected a subclass of Task"),
        (made(Task, draw=WHOLE["draw"]), "^has no read$"),
        (made(Task), "^has no draw and no read$"),
        (made(Task, **WHOLE), "^is not a dataclass"),
        (dataclass(made(Task, **WHOLE, __annotations__={"bits": int})), "^has 'bits' without"),
        (dataclass(made(Task, **WHOLE, __annotations__={"bits": tuple}, bits=())), "has bits: "),
        (dataclass(made(Task, **WHOLE, characters="0101")), "each character once"),
    ],
)
def test_an_incomplete_task_is_refused_by_what_it_lacks(kind, message):
    with pytest.raises(ValueError, match=message):
        check_task(kind)


# ---------------------------------------------------------------- problems


def test_as_many_problems_as_are_asked_for(task):
    for split in splits(task):
        assert task.draw(0, split=split, generator=source()) == []
        drawn = task.draw(COUNT, split=split, generator=source())
        assert len(drawn) == COUNT
        for problem in drawn:
            assert isinstance(problem.prompt, str)
            assert problem.prompt
            assert problem.answer is not None


def test_the_generator_is_the_only_source_of_chance(task):
    state = torch.get_rng_state()
    for split in splits(task):
        one, two, other = (task.draw(COUNT, split=split, generator=source(i)) for i in (3, 3, 4))
        assert one == two
        assert one != other
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_goes_on_and_does_not_begin_again(task):
    generator = source()
    first, second = (task.draw(COUNT, split="train", generator=generator) for _ in range(2))
    assert first != second


def test_what_is_held_out_is_never_trained_on(task):
    assert task.held_out != "train"
    prompts = {
        split: {
            problem.prompt
            for seed in range(20)
            for problem in task.draw(COUNT, split=split, generator=source(seed))
        }
        for split in splits(task)
    }
    for split in splits(task) - {"train"}:
        assert prompts["train"].isdisjoint(prompts[split]), split
    if task.held_out != "test":
        assert prompts[task.held_out].isdisjoint(prompts["test"])


@pytest.mark.parametrize("split", ["dev", "Train", ""])
def test_an_unknown_split_is_refused_by_name(task, split):
    with pytest.raises(ValueError, match=rf"split is {split!r}, expected "):
        task.draw(1, split=split, generator=source())


def test_a_negative_count_is_refused_by_name(task):
    with pytest.raises(ValueError, match="count is -1, expected 0 or more"):
        task.draw(-1, split="train", generator=source())


# ---------------------------------------------------------------- verdicts


def shown(task):
    """Training problems and right responses to them."""
    assert task.has_teacher()
    return task.demonstrate(COUNT, generator=source())


def test_the_teacher_is_right_about_training_problems(task):
    problems, responses = shown(task)
    assert problems == task.draw(COUNT, split="train", generator=source())
    for problem, response in zip(problems, responses, strict=True):
        assert task.read(response) == problem.answer
        assert task.read(response, strict=False) == problem.answer
    rewards = task.rewards(responses, problems)
    assert rewards.dtype == torch.float32
    assert rewards.tolist() == [1.0] * COUNT


def test_right_is_what_the_problem_says_and_not_the_place(task):
    """Each response, put to every problem."""
    problems, responses = shown(task)
    for problem in problems[:8]:
        right = [float(other.answer == problem.answer) for other in problems]
        assert task.rewards(responses, [problem] * COUNT).tolist() == right


@pytest.mark.parametrize("text", GARBAGE)
def test_what_gives_no_answer_earns_nothing(task, text):
    problems = task.draw(COUNT, split=task.held_out, generator=source())
    assert task.rewards([text] * COUNT, problems).tolist() == [0.0] * COUNT
    assert task.read("") is None
    task.read(text, strict=False)  # which may find something, but must not fail


def test_steps_end_within_the_response_one_after_the_other(task):
    problems, responses = shown(task)
    for problem, response in zip(problems, responses, strict=True):
        for text in (response, response + response, *GARBAGE):
            ends = [step.end for step in task.steps(text, problem)]
            assert ends == sorted(set(ends))
            assert all(0 < end <= len(text) for end in ends)
            assert all(math.isfinite(step.reward) for step in task.steps(text, problem))


def test_there_are_as_many_responses_as_problems(task):
    problems, responses = shown(task)
    for judge in (task.rewards, task.preference):
        with pytest.raises(ValueError, match=r"argument|entries"):
            judge(responses[:-1], problems)
        assert judge([], []).shape == (0,)


def test_no_response_is_preferred_to_the_right_one(task):
    problems, responses = shown(task)
    best = task.preference(responses, problems)
    assert best.shape == (COUNT,)
    assert best.isfinite().all()
    others = [*responses, *GARBAGE, "9" * 40, "#### " + "9" * 50, "-" * 30]
    for other in others:
        liking = task.preference([other] * COUNT, problems)
        assert not liking.isnan().any()
        assert (liking <= best).all()
        assert (liking < math.inf).all()
    worst = task.preference([""] * COUNT, problems)
    assert (worst < best).all()


# ---------------------------------------------------------------- texts


def test_prompts_and_responses_are_of_the_characters_that_the_task_names(task):
    if task.characters is None:
        assert task.worked_solutions  # a vocabulary is learned from them
        return
    assert len({*task.characters}) == len(task.characters)
    problems, responses = shown(task)
    for split in splits(task):
        problems += task.draw(COUNT, split=split, generator=source())
    texts = "".join([p.prompt for p in problems] + responses)
    assert {*texts} <= {*task.characters}


def test_a_tokenizer_takes_the_tasks_texts_apart_and_puts_them_together(kind, task):
    tokenizer = load_tokenizer(recipe(kind))
    problems, responses = shown(task)
    for text in [p.prompt + response for p, response in zip(problems, responses, strict=True)]:
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in ids
    if task.characters is not None:
        by_hand = tiny.tokenizer(task.characters)
        assert tokenizer.get_vocab() == by_hand.get_vocab()
        assert len(tokenizer) == len(task.characters) + 2


def test_worked_solutions_end_in_the_answer(task):
    if not task.worked_solutions:
        return
    for split in splits(task):
        for problem in task.draw(COUNT, split=split, generator=source()):
            assert isinstance(problem.solution, str)
            assert task.read(problem.solution) == problem.answer


def test_a_careless_teacher_is_wrong_at_times_and_at_none_is_the_usual_one(task):
    if "careless_share" not in settings_of(type(task).demonstrate):
        return
    assert task.demonstrate(COUNT, generator=source(), careless_share=0.0) == shown(task)
    problems, responses = task.demonstrate(COUNT, generator=source(), careless_share=1.0)
    assert problems == shown(task)[0]
    assert 0 < task.rewards(responses, problems).mean() < 1


# ---------------------------------------------------------------- settings


def test_the_recipe_makes_the_task_with_its_settings(kind):
    assert recipe(kind).task.build() == kind()
    assert {*recipe(kind).task.settings} == {*settings_of(kind)}


def out_of_range(bounds):
    """Numbers on both sides of a range."""
    ends = [bounds.gt, bounds.lt]  # which are out themselves
    ends += [end + step for end, step in ((bounds.ge, -1), (bounds.le, 1)) if end is not None]
    return [x for x in ends if x is not None]


def test_every_number_has_bounds_that_the_recipe_enforces(kind):
    for setting in settings_of(kind).values():
        if setting.type not in (int, float):
            continue
        assert setting.bounds is not None, setting
        refused = out_of_range(setting.bounds)
        assert refused, setting
        for value in map(setting.type, refused):
            expected = rf"task\.{setting.name} is {value!r}, expected {in_words(setting.bounds)}"
            with pytest.raises(ValueError, match=expected):
                recipe(kind, **{setting.name: value})


def test_a_setting_that_there_is_not_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=r"task\.nothing is not used"):
        recipe(kind, nothing=1)


# ---------------------------------------------------------------- models made for a task


@dataclass(frozen=True)
class Silent(Reversal):
    """Without characters and without solutions."""

    characters: ClassVar[str | None] = None


@dataclass(frozen=True)
class Explained(Reversal):
    """With characters, and with worked solutions in them."""

    worked_solutions: ClassVar[bool] = True


OWN = OwnCode(tasks={"silent": Silent, "explained": Explained})


@pytest.mark.parametrize("model", [{}, {"vocabulary": 300}], ids=str)
def test_no_vocabulary_is_learned_from_nothing(model):
    tables = {**small.tables(model=model), "task": {"name": "silent"}}
    with pytest.raises(ValueError, match=r"model\.source is 'tiny', but silent has neither char"):
        validate(Recipe, tables, name="recipe", code=OWN)
    given = {**small.tables(), "model": {"source": "some/model"}, "task": {"name": "silent"}}
    assert validate(Recipe, given, name="recipe", code=OWN).task.build() == Silent()


def test_problems_of_gsm8k_are_not_mixed_into_a_task_that_is_read_by_characters():
    task, model = (
        {"name": "explained", "max_steps": None, "distractors": None},
        {"vocabulary": None},
    )
    tables = small.base_tables(task=task, model=model)
    assert validate(Pretraining, tables, name="recipe", code=OWN).task.build() == Explained()
    with pytest.raises(ValueError, match=r"gsm8k_share is 0\.2, expected 0: explained is read by"):
        validate(Pretraining, {**tables, "gsm8k_share": 0.2}, name="recipe", code=OWN)
