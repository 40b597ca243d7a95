"""What tests of runs share: a tokenizer that is soon learned, and prompts that are soon counted."""

from collections.abc import Iterator

import pytest

from nbcourse.budget import prompts
from nbcourse.training import models


@pytest.fixture(scope="package", autouse=True)
def few_texts() -> Iterator[None]:
    """No test of this room asks how good a tokenizer is; from 4,000 texts it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "TEXTS", 60)
        patch.setattr(prompts, "PROMPTS", 100)
        yield
