"""The Hugging Face hub: asked if it answers, and reported in seconds if it does not."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from unittest import mock

PATIENCE = 5.0  # seconds in which the hub has to answer at all


@contextmanager
def within_seconds() -> Iterator[None]:
    """Let the hub's clients ask a hub that answers; else what they have kept has to do.

    The clients themselves ask for one file after the other and try each several times, for half a
    minute and more.
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE or not answers(constants.ENDPOINT)
    data_sets = getattr(sys.modules.get("datasets"), "config", None)  # which has a copy of its own
    with ExitStack() as stack:
        for client in (constants, *([data_sets] if data_sets else [])):
            stack.enter_context(mock.patch.object(client, "HF_HUB_OFFLINE", offline))
        yield


def answers(address: str) -> bool:
    """Whether anybody answers there; a look-up of the name may hang, so that a thread asks."""
    from huggingface_hub.utils import get_session

    found = []

    def ask() -> None:
        with suppress(Exception):
            found.append(get_session().head(address, timeout=PATIENCE))

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(found)
