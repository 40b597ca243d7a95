"""How long a test waits, and how many examples it tries."""

from hypothesis import HealthCheck, settings

PATIENCE = 1200.0  # seconds, before what comes by itself is called hung: no machine is that busy

# The same examples every time, however slow the machine; `make test-slow` tries others, and more.
settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), derandomize=False, max_examples=2000
)
settings.load_profile("quick")


def examples(count: int) -> settings:
    """So many examples of a property, and twenty times as many in `make test-slow`."""
    return settings(max_examples=count * settings().max_examples // 100)
