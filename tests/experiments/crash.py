"""A training run in a process of its own that can be made to die at a chosen moment, by SIGKILL."""

import os
import pathlib
import shutil
import signal
import sys


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


def train_until_the_power_fails(tables, folder, syncs, left):
    """Train; after so many calls of fsync, or at the end, write what the disk has into `left`."""
    disk, now, whole = Disk(), Countdown(syncs), os.fsync

    def fsync(number):
        whole(number)
        disk.sync(number)
        if now():
            disk.lay(folder, left)
            die()

    os.fsync = fsync
    train(tables, folder)
    disk.lay(folder, left)


class Disk:
    """A disk that has of each file and folder what it was at the last fsync, and nothing else.

    A new file that was not synced is empty, and one whose folder was not synced has no name.
    """

    def __init__(self):
        self.contents, self.names = {}, {}
        self.open = []  # so that the number of a file that is removed is not given to another

    def sync(self, number):
        place = pathlib.Path(f"/proc/self/fd/{number}")
        if place.is_dir():
            entries = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(place)}
            self.names[os.fstat(number).st_ino] = entries
        else:
            self.contents[os.fstat(number).st_ino] = place.read_bytes()
        self.open.append(os.dup(number))

    def lay(self, folder, target):
        """Write the folder as the disk has it."""
        self._lay(os.stat(folder).st_ino, pathlib.Path(target))

    def _lay(self, number, target):
        target.mkdir()
        for name, (inner, is_folder) in self.names.get(number, {}).items():
            if is_folder:
                self._lay(inner, target / name)
            else:
                (target / name).write_bytes(self.contents.get(inner, b""))


def train_until_the_disk_is_full(tables, folder, files):
    """Train; from the so many-th file on that is opened for writing, the disk takes 50 bytes more.

    The kernel refuses the rest, to compiled code as well; a file is cut off in the middle.
    """
    import resource

    now = Countdown(files)

    def audit(event, arguments):
        if event != "open" or not str(arguments[0]).startswith(str(folder)):
            return
        if arguments[2] & (os.O_WRONLY | os.O_RDWR) and now():
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))

    sys.addaudithook(audit)
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
        whole = pathlib.Path.write_bytes

        def write_bytes(self, content):
            if self.name == name and now():
                whole(self, content[: len(content) // 2])
                die()
            return whole(self, content)

        pathlib.Path.write_bytes = write_bytes

    return moment


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
            line = records.line(row)
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
    "before the renaming": around_the_renaming(before=True),
    "after the renaming": around_the_renaming(before=False),
    "while older ones are removed": while_older_ones_are_removed,
    "in a line of metrics": in_a_line_of_metrics,
    "after a line of metrics": after_a_line_of_metrics,
    "while metrics are mended": in_a_file("metrics.unfinished"),
    "before the summary": before_the_summary,
}
