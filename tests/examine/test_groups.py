"""A batch of groups, taken apart and put together, against the trainer's loss on the whole."""

import pytest
import torch
from torch.testing import assert_close

from nbcourse.examine import known
from nbcourse.examine.groups import Groups
from nbcourse.examine.worlds import Prompt
from nbcourse.toys import enumeration
from nbcourse.training.algorithms import ALGORITHMS
from tests import five_answers
from tests.five_answers import GROUP, LOGITS, RIGHT, SPACE

WHOLE_BATCH = {"reinforce", "ppo", "reinforce++"}
PROMPT = Prompt(SPACE, LOGITS, RIGHT)


def taken_apart(name):
    return Groups.of(known.row(name, beta=0.0, average=0.3, longest=4), PROMPT, GROUP)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - WHOLE_BATCH))
def test_the_update_of_a_batch_is_the_weighted_mean_of_its_groups(name):
    found, members = taken_apart(name), torch.combinations(torch.arange(5), 3, True)
    assert found.probs.shape == (35,)
    for chosen in ([0], [3, 17], [8, 8, 30], [34, 5, 12, 1]):  # the order of combinations
        whole = five_answers.update(name, members[chosen].flatten())
        weights = found.weights[chosen][:, None, None]
        assert_close((weights * found.updates[chosen]).sum(dim=0) / weights.sum(), whole)


@pytest.mark.parametrize("name", ["grpo", "dapo"])
def test_mean_and_variance_of_one_group_are_those_of_all_orders(name):
    members = enumeration.groups(5, GROUP)
    probs = enumeration.group_probs(SPACE.probs(LOGITS), members)
    updates = torch.stack([five_answers.update(name, group) for group in members])
    mean, variance = taken_apart(name).moments(1)
    assert_close(mean, enumeration.mean(probs, updates))
    assert_close(variance, enumeration.variance(probs, updates))


@pytest.mark.parametrize("name", sorted(WHOLE_BATCH))
def test_a_row_that_compares_with_the_whole_batch_is_refused(name):
    with pytest.raises(ValueError, match="compares a response with 'batch', expected its own"):
        taken_apart(name)
