"""Worker processes: replaced when they die, hang or grow."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.opinfo.database import Task
from tests.opinfo.options import Checks
from tests.opinfo.outcomes import Record

_START_S = 300  # for the imports of a fresh worker
_MOST_BYTES = 4 << 30  # a worker that has grown beyond is replaced
_FATAL = re.compile(r"^F\d{4} .*", re.MULTILINE)  # as written by the logger of XLA and libtpu
_TAIL = 600  # characters of a dead worker's last words


def serve(pipe: Connection, checks: Checks, log: str) -> None:
    """The worker's loop: tasks come, records go."""
    with open(log, "w") as words:
        os.dup2(words.fileno(), 2)
    faulthandler.enable()
    import torch

    from tests.opinfo.task import run_task

    torch.set_num_threads(1)
    pipe.send(None)  # ready
    while True:
        pipe.send(run_task(pipe.recv(), checks))


class Worker:
    """One process, and the task it has."""

    def __init__(self, checks: Checks, directory: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        handle, self.log = tempfile.mkstemp(".log", dir=directory)
        os.close(handle)
        self.process: Any = context.Process(target=serve, args=(theirs, checks, self.log), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.deadline = 0.0
        self._wait_for_start()

    def _wait_for_start(self) -> None:
        try:
            started = self.pipe.poll(_START_S) and self.pipe.recv() is None
        except EOFError:
            started = False
        if not started:
            raise RuntimeError(f"a worker did not start: {self.last_words()}")

    def give(self, task: Task, timeout_s: float) -> None:
        """Start a task."""
        self.task = task
        self.deadline = time.monotonic() + timeout_s
        self.pipe.send(task)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def last_words(self) -> str:
        """The line with which a library ended the process, or the end of what there is on stderr."""
        text = Path(self.log).read_text(errors="replace")
        fatal = _FATAL.search(text)
        return fatal[0] if fatal else " ".join(text.split())[-_TAIL:]


class Pool:
    """Runs tasks in ``jobs`` workers. A task whose worker died is tried once more in a fresh one."""

    def __init__(self, checks: Checks, jobs: int, timeout_s: float) -> None:
        self.checks, self.jobs, self.timeout_s = checks, jobs, timeout_s

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Record]]:
        """Records, as they come."""
        waiting = deque(tasks)
        retried: set[Task] = set()
        workers: list[Worker] = []
        with tempfile.TemporaryDirectory(prefix="opinfo-") as directory:
            try:
                while waiting or workers:
                    while waiting and len(workers) < self.jobs:
                        workers.append(Worker(self.checks, directory))
                        workers[-1].give(waiting.popleft(), self.timeout_s)
                    for worker, record in self._finished(workers):
                        task = worker.task
                        assert task is not None
                        if record.status == "crash" and task not in retried:  # perhaps an earlier task's damage
                            retried.add(task)
                            waiting.appendleft(task)
                        else:
                            record.retried = task in retried
                            yield task, record
                        self._go_on(workers, worker, record, waiting)
            finally:
                for worker in workers:
                    worker.stop()

    def _go_on(self, workers: list[Worker], worker: Worker, record: Record, waiting: deque[Task]) -> None:
        """Give a worker that is free its next task, or let it go."""
        if not waiting or record.status in ("crash", "timeout") or record.memory_bytes > _MOST_BYTES:
            workers.remove(worker)
            worker.stop()
        else:
            worker.give(waiting.popleft(), self.timeout_s)

    def _finished(self, workers: list[Worker]) -> Iterator[tuple[Worker, Record]]:
        """Wait for workers that have answered, died or overrun their time."""
        soonest = min(worker.deadline for worker in workers)
        ready = wait([worker.pipe for worker in workers], max(soonest - time.monotonic(), 0))
        for worker in list(workers):
            if worker.pipe in ready:
                yield worker, self._answer(worker)
            elif time.monotonic() > worker.deadline:
                yield worker, self._lost("timeout", f"more than {self.timeout_s:g} s")

    def _answer(self, worker: Worker) -> Record:
        try:
            return worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            return self._lost("crash", f"exit code {worker.process.exitcode}: {worker.last_words()}")

    def _lost(self, outcome: str, text: str) -> Record:
        record = Record(self.checks.key)
        record.add("compile" if self.checks.topology else outcome, outcome, text)
        return record
