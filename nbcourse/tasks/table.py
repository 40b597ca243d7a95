"""The tasks of the package, by the names that recipes use.

A task is one file of this folder: a module with a dictionary `TASKS`, name → class. Every module
that lies here is looked into, so a new task is listed nowhere.
"""

from importlib import import_module
from pkgutil import iter_modules

import nbcourse.tasks
from nbcourse.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    name: task
    for module in iter_modules(nbcourse.tasks.__path__)
    if module.name != "table"
    for name, task in getattr(import_module(f"nbcourse.tasks.{module.name}"), "TASKS", {}).items()
}
