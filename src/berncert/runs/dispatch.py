"""Items handed out to workers, a bounded number at a time, and their results in order, whatever happens to workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from berncert.foundation.progress import Bar
from berncert.foundation.settings import checked
from berncert.runs.engine import Pool
from berncert.runs.table import Table
from berncert.runs.worker import ROWS, Job, MissingPartError

MOST_LOSSES = 3
"""Times that an item is handed out again after its worker was lost; the last time alone, so that no other is blamed."""
AHEAD = 8
"""Items per worker whose results may wait for one before them."""
SECONDS_BETWEEN_LOOKS = 1.0
END = object()
"""After the last item."""


@dataclass
class Flight:
    """An item that was handed out."""

    item: Any
    future: Future[Any]
    began: float
    supplies: dict[str, Any] = field(default_factory=dict)
    losses: int = 0
    at: str = ""
    """The worker that it was handed to, if one was chosen."""


def check_timeout(timeout: float | None) -> None:
    """Raise a ValueError unless it is a number of seconds, or None."""
    checked("timeout", timeout, float | None, {"above": 0, "help": "seconds until a batch is given to another worker"})


def fill(
    table: Table,
    pool: Pool,
    job: Job,
    count: int,
    size: int,
    *,
    doing: str,
    timeout: float | None = None,
    progress: bool | None = None,
) -> None:
    """Append the rows that are missing of `count`, in batches of `size`; of a batch that was cut off, only those."""
    if table.done == count:
        table.end()
        return
    first = table.done // size * size
    batches = (slice(start, min(start + size, count)) for start in range(first, count, size))
    left_out = table.done - first
    with Bar(doing, total=count, progress=progress) as bar, pool:
        bar.update(table.done)
        for group in Dispatcher(pool, job, timeout=timeout).results(batches):
            table.append(list(chain.from_iterable(group))[left_out:])
            left_out = 0
            bar.update(table.done)
    table.end()


class Dispatcher:
    """One job on one pool: `for results in Dispatcher(pool, job).results(items)`."""

    def __init__(self, pool: Pool, job: Job, *, timeout: float | None = None, at_once: int | None = None) -> None:
        self.pool, self.job, self.timeout, self.at_once = pool, job, timeout, at_once or pool.at_once
        self.flights: dict[int, Flight] = {}
        """Place of an item -> where it is."""
        self.last_tries: dict[int, Flight] = {}
        """Place of an item -> what was lost so often that it is handed out once more, when nothing else is out."""
        self.ready: dict[int, Any] = {}
        """Place of an item -> its result, while one before it is missing."""
        self.always: set[str] = set()
        """Parts that come with every item, since a worker asked for them."""
        self.answered = False

    def results(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        """The results in the order of the items, each once, as many together as have come."""
        waiting, place, handed_out = iter(items), 0, 0
        upcoming = next(waiting, END)
        try:
            while self.flights or self.last_tries or upcoming is not END:
                for _ in range(self._room()):
                    if upcoming is END:
                        break
                    self.flights[handed_out] = self._hand_out(upcoming)
                    upcoming, handed_out = next(waiting, END), handed_out + 1
                self._try_alone()
                self._collect()
                group = []
                while place in self.ready:
                    group.append(self.ready.pop(place))
                    place += 1
                if group:
                    yield group
        finally:
            for flight in self.flights.values():
                flight.future.cancel()

    def _room(self) -> int:
        """How many more items may be handed out: at first one for each worker, as it will ask for the model."""
        if self.last_tries:
            return 0
        slots = self.pool.slots()
        each = self.at_once if self.answered else 1
        return max(0, min(each * slots - len(self.flights), AHEAD * slots - len(self.flights) - len(self.ready)))

    def _try_alone(self) -> None:
        """Hand out a last try, once all others have come back."""
        if self.last_tries and not self.flights:
            number = min(self.last_tries)
            flight = self.last_tries.pop(number)
            self.flights[number] = self._hand_out(flight.item, losses=flight.losses)

    def _hand_out(self, item: Any, *parts: str, at: str = "", losses: int = 0) -> Flight:
        supplies = {part: self.job.supply(part, item) for part in {*parts, *self.always}}
        return Flight(item, self.pool.submit(self.job, item, supplies, at), time.monotonic(), supplies, losses, at)

    def _supplied(self, flight: Flight, missing: MissingPartError) -> Flight:
        """The item again, with what its worker had not, to the same worker; a model that is on its way is not sent."""
        if missing.part in flight.supplies:
            raise RuntimeError(f"expected a worker to take the {missing.part}, got none that did")
        self.always |= {missing.part} & {ROWS}
        others = (other for other in self.flights.values() if missing.where and other.at == missing.where)
        coming = any(missing.part in other.supplies for other in others)
        parts = () if coming else (missing.part,)
        return self._hand_out(flight.item, *parts, at=missing.where, losses=flight.losses)

    def _collect(self) -> None:
        """Wait until something happens, and take what has come."""
        if not self.flights:  # there is no worker
            time.sleep(SECONDS_BETWEEN_LOOKS)
        done, _ = wait([f.future for f in self.flights.values()], SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
        lost = False
        ended = [(number, flight) for number, flight in self.flights.items() if flight.future in done]
        # what was missing comes first, while the item that has just brought it to the worker is still among the flights
        ended.sort(key=lambda pair: not isinstance(_failure(pair[1].future), MissingPartError))
        for number, flight in ended:
            try:
                self.ready[number] = flight.future.result()
                self.answered = True
                del self.flights[number]
            except MissingPartError as missing:
                self.flights[number] = self._supplied(flight, missing)
            except self.pool.lost:
                lost = True
        now = time.monotonic()
        late = [f for f in self.flights.values() if self.timeout is not None and now - f.began > self.timeout]
        late = [f for f in late if not f.future.done()]
        if lost or late:
            self._recover(late)
        self.pool.check()

    def _recover(self, late: list[Flight]) -> None:
        """Bring the pool back to work, and hand out again what was lost."""
        for flight in late:
            flight.began = time.monotonic()
            self._count_loss(flight, f"was not done after {self.timeout:g} s")
        self.pool.restore([flight.future for flight in late])
        for number, flight in list(self.flights.items()):
            if flight.future.done() and isinstance(_failure(flight.future), self.pool.lost):
                if flight not in late:
                    self._count_loss(flight, "ended with its worker")
                if flight.losses < MOST_LOSSES:
                    self.flights[number] = self._hand_out(flight.item, losses=flight.losses)
                else:
                    self.last_tries[number] = self.flights.pop(number)

    def _count_loss(self, flight: Flight, what: str) -> None:
        flight.losses += 1
        if flight.losses > MOST_LOSSES:
            script = "" if self.answered else ', or a script without `if __name__ == "__main__":`'
            raise RuntimeError(
                f"expected a worker to finish {describe(flight.item)}, got none: it {what}, {flight.losses} times; "
                f"see what the workers say (memory?{script}), try a smaller batch_size or a longer timeout; what was "
                "written is kept, and the same command resumes from there"
            )


def describe(item: Any) -> str:
    """An item in a message: the rows that it is about, or its name."""
    first, last = getattr(item, "start", None), getattr(item, "stop", None)
    return f"rows {first} to {last - 1}" if first is not None and last is not None else str(item)


def _failure(future: Future[Any]) -> BaseException | None:
    return CancelledError() if future.cancelled() else future.exception()
