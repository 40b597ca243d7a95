"""Grade a whole class, several submissions at a time; a run that was stopped can be resumed.

Grading processes are forked from one that has imported torch, and so are those of submissions, from
another one, the `Zygote`. Every result is written as soon as it is ready, so that nothing is lost
when a run is stopped.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from pathlib import Path

from nbcourse.classroom import results
from nbcourse.classroom.results import SubmissionResult, Terms
from nbcourse.classroom.submissions import Candidate, Submission
from nbcourse.confined import sandbox
from nbcourse.confined.forkserver import ForkServer, Zygote, graders
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError


def grade_submissions(
    submissions: Sequence[Submission], terms: Terms, folder: Path, *, jobs: int
) -> Generator[tuple[Submission, SubmissionResult], None, None]:
    """Grade submissions and write each result to `folder`/KEY.json.

    A result that is there already, for the same notebook and conditions, is kept. The master is
    graded as well, as if a student had handed it in. Where each student has numbers of their own, a
    submission that is not known to be any student's cannot be graded.

    Args:
        submissions: of the class.
        terms: how to grade.
        folder: where the results are.
        jobs: how many to grade at a time.

    Yields:
        Each submission with its result, in the order in which they are ready.

    Raises:
        UserError: if the master's own solutions do not pass its tests, or a result cannot be
            written.
        SandboxFailed: if the kernel refuses to confine a process.
    """
    to_do: list[Submission] = []
    for submission in submissions:
        path = folder / f"{submission.key}.json"
        if terms.personal and submission.owner is None:
            failure = f"the student's own numbers are unknown: {submission.unmatched}"
            result = results.not_graded(submission, terms.master, failure)
            results.write_result(result, path)
            yield submission, result
        elif (done := _done(submission, terms, path)) is None:
            to_do.append(submission)
        else:
            yield submission, done
    if not to_do:
        return
    solved = Submission("the master", "", notebook=Candidate(terms.master.path))
    for submission, result in _graded([solved, *to_do], terms, jobs):
        if submission is solved:
            _require_all_points(result)
        else:
            results.write_result(result, folder / f"{submission.key}.json")
            yield submission, result


def _require_all_points(result: SubmissionResult) -> None:
    for exercise in result.exercises:
        if exercise.state not in (Ending.PASSED, Ending.BY_HAND):
            raise UserError(
                f"the master of {result.assignment} fails its own test {exercise.exercise!r} "
                f"({exercise.state}): {exercise.feedback} {result.failure}"
            )


def _done(submission: Submission, terms: Terms, path: Path) -> SubmissionResult | None:
    """The result of an earlier run, if nothing that it depends on has changed since."""
    try:
        stored = results.read_result(path)
        digest = sha256(submission.read_bytes()).hexdigest()
    except (FileNotFoundError, ValueError):  # among them Unreadable
        return None
    if stored.submission != digest or stored.conditions != terms.conditions(submission):
        return None
    named = replace(stored, student=submission.student, late=submission.late)
    if named != stored:
        results.write_result(named, path)
    return named


class _Worker:
    """A process that grades one submission after the other."""

    def __init__(self, terms: Terms, zygote: Zygote) -> None:
        self.terms = terms
        context = graders("nbcourse.classroom.grading")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, terms, zygote), daemon=True)
        with _ignored_interrupts():  # inherited: Ctrl-C is for this process, which ends the worker
            self.process.start()
        theirs.close()

    def give(self, submission: Submission) -> None:
        self.submission = submission
        self.give_up_at = time.monotonic() + 3 * self.terms.limits.total + 60
        with suppress(BrokenPipeError):  # it has ended, and `take` will see that
            self.connection.send(submission)

    def take(self) -> SubmissionResult | Exception:
        """The result of the submission; the process may have ended over it, or hang."""
        with suppress(EOFError, ConnectionError):
            if self.connection.poll():
                return self.connection.recv()
        self.process.kill()
        self.process.join()
        failure = f"the process that graded it ended with status {self.process.exitcode}"
        return results.not_graded(self.submission, self.terms.master, failure)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _graded(
    submissions: list[Submission], terms: Terms, workers: int
) -> Iterator[tuple[Submission, SubmissionResult]]:
    waiting = submissions[::-1]
    busy: list[_Worker] = []
    with Zygote() as zygote:
        try:
            while waiting or busy:
                while waiting and len(busy) < workers:
                    busy.append(_Worker(terms, zygote))
                    busy[-1].give(waiting.pop())
                ready = wait([worker.connection for worker in busy], timeout=1.0)
                for worker in list(busy):
                    if worker.connection not in ready and time.monotonic() < worker.give_up_at:
                        continue
                    submission, result = worker.submission, worker.take()
                    if isinstance(result, Exception):
                        raise result
                    if waiting and worker.process.is_alive():
                        worker.give(waiting.pop())
                    else:
                        worker.end()
                        busy.remove(worker)
                    yield submission, result
        finally:
            for worker in busy:
                worker.end()


def _end_with_the_first_process() -> None:
    """It may be killed, and then nobody waits for a result any more."""
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
    os._exit(1)


def _work(connection: Connection, terms: Terms, zygote: Zygote) -> None:
    """Grade what comes through the connection until it closes, or the first process ends."""
    threading.Thread(target=_end_with_the_first_process, daemon=True).start()
    with ForkServer(zygote, confined=terms.confined) as server:
        import torch  # while the zygote does the same, unless it is there already

        from nbcourse.classroom.grading import grade_submission
        from nbcourse.confined.remote import SandboxFailed

        torch.set_num_threads(1)
        if terms.confined:  # an answer may be a number that a test makes a tensor of
            sandbox.limit_memory(terms.limits.memory)
        while True:
            try:
                submission = connection.recv()
            except EOFError:
                return
            try:
                answer: SubmissionResult | Exception = grade_submission(submission, terms, server)
            except SandboxFailed as error:
                answer = error
            except Exception as error:
                answer = results.not_graded(submission, terms.master, _explanation(error))
            connection.send(answer)


def _explanation(error: Exception) -> str:
    """One line where a file is the reason, such as on a full disk; else the stack trace."""
    if isinstance(error, OSError) and error.filename is not None:
        return str(error)
    return "".join(traceback.format_exception(error))
