"""A training run in a process of its own that can be made to die at a chosen moment, by SIGKILL."""

import multiprocessing
import os
import pathlib
import shutil
import signal
import sys

PRELOAD = ["nbcourse.experiments.run", "transformers.models.qwen2.modeling_qwen2"]


def process(target, *arguments):
    """Started from a server that has the imports done; by spawning where there is no such thing."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(PRELOAD)
    started = context.Process(target=target, args=arguments)
    started.start()
    return started


def train(tables, folder, moment=None, count=1):
    """Train or go on; at the `count`-th time that `moment` comes, die."""
    from nbcourse.experiments.pretraining import pretrain
    from nbcourse.experiments.run import train as train_by_recipe
    from nbcourse.training.recipe import Recipe, kind_of, validate

    if moment is not None:
        MOMENTS[moment](Countdown(count))
    recipe = validate(kind_of(tables), tables, name="recipe")
    go = train_by_recipe if isinstance(recipe, Recipe) else pretrain
    go(recipe, folder=folder, resume=True, progress=False)


def train_some_calls_more(tables, folder, lines, calls):
    """Train or go on; die so many function calls after so many lines of metrics: anywhere."""
    from nbcourse.experiments import records

    whole, line, call = records.Metrics.write, Countdown(lines), Countdown(calls)

    def count(frame, event, argument):
        if event == "call" and call():
            die()

    def write(self, row):
        whole(self, row)
        if line():
            sys.setprofile(count)

    records.Metrics.write = write
    train(tables, folder)


class Countdown:
    def __init__(self, count):
        self.count = count

    def __call__(self):
        """Whether the time has come."""
        self.count -= 1
        return self.count == 0


def die():
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def in_the_tensors(now):
    import safetensors.torch

    whole = safetensors.torch.save_file

    def save_file(tensors, path):
        whole(tensors, path)
        if now():
            os.truncate(path, os.path.getsize(path) // 2)
            die()

    safetensors.torch.save_file = save_file


def in_a_file(name):
    def moment(now):
        whole = pathlib.Path.write_text

        def write_text(self, text, **options):
            if self.name == name and now():
                whole(self, text[: len(text) // 2], **options)
                die()
            return whole(self, text, **options)

        pathlib.Path.write_text = write_text

    return moment


def before_the_disk_has_it(now):
    whole = os.fsync

    def fsync(number):
        if now():
            die()
        whole(number)

    os.fsync = fsync


def around_the_renaming(*, before):
    def moment(now):
        whole = pathlib.Path.rename

        def rename(self, target):
            mine = self.name == "unfinished" and now()
            if mine and before:
                die()
            whole(self, target)
            if mine:
                die()

        pathlib.Path.rename = rename

    return moment


def while_older_ones_are_removed(now):
    whole = shutil.rmtree

    def rmtree(path, **options):
        if pathlib.Path(path).name.startswith("step-") and now():
            next(pathlib.Path(path).iterdir()).unlink()
            die()
        whole(path, **options)

    shutil.rmtree = rmtree


def in_a_line_of_metrics(now):
    from nbcourse.experiments import records

    whole = records.Metrics.write

    def write(self, row):
        if now():
            line = records._line(row)
            self.stream.write(line[: len(line) // 2])
            self.stream.flush()
            die()
        whole(self, row)

    records.Metrics.write = write


def after_a_line_of_metrics(now):
    from nbcourse.experiments import records

    whole = records.Metrics.write

    def write(self, row):
        whole(self, row)
        if now():
            die()

    records.Metrics.write = write


def before_the_summary(now):
    from nbcourse.experiments import records

    whole = records.write_json

    def write_json(path, content):
        if path.name == records.SUMMARY and now():
            die()
        whole(path, content)

    records.write_json = write_json


MOMENTS = {
    "in the tensors": in_the_tensors,
    "in the numbers": in_a_file("numbers.json"),
    "in the recipe": in_a_file("recipe.unfinished"),
    "before the disk has it": before_the_disk_has_it,
    "before the renaming": around_the_renaming(before=True),
    "after the renaming": around_the_renaming(before=False),
    "while older ones are removed": while_older_ones_are_removed,
    "in a line of metrics": in_a_line_of_metrics,
    "after a line of metrics": after_a_line_of_metrics,
    "while metrics are mended": in_a_file("metrics.unfinished"),
    "before the summary": before_the_summary,
}
