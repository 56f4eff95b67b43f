"""Webhook notifier: the hook: puts each event into a bounded queue and lets one thread deliver."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.webhook.webhook_addresses import target_of
from model_checkpoint.hooks.builtin.webhook.webhook_delivery import deliver
from model_checkpoint.hooks.builtin.webhook.webhook_signatures import HEADER, sign
from model_checkpoint.hooks.errors import DeliveryFailed, HookInvalid, HookPoolDead
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority
from model_checkpoint.hooks.values.plain_data import plain_data

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE = 60.0
_MOST_FAILED = 1000
_chance = random.Random()  # of our own: the numbers of a training are not for us to draw


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNotification:
    """One event on its way; ``delivery`` is the same at every try, so that a receiver can tell a repetition."""

    delivery: str
    event: str
    body: bytes
    failure: str = ""


class WebhookNotifierHook(BaseHook):
    """Posts JSON to a URL for each of ``events``: what happened, to which checkpoint, and the data that is plain.

    A save never waits: notifications go into a queue of at most ``max_queued`` and one thread delivers them in order,
    each tried up to ``max_attempts`` times with growing pauses. With a ``secret`` each is signed
    (:func:`verify_signature`). Redirects are not followed, and only public https addresses are spoken to unless
    ``private_network=True``.

    Example:
        >>> WebhookNotifierHook("http://127.0.0.1:8080/hook", secret="s", private_network=True).statistics()
        {'sent': 0, 'retried': 0, 'failed': 0, 'refused': 0, 'queued': 0}
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | bytes | None = None,
        events: Collection[HookEvent | str] = (
            HookEvent.AFTER_CHECKPOINT_SAVE,
            HookEvent.ON_BEST_MODEL_UPDATE,
            HookEvent.ON_INTEGRITY_FAILURE,
            HookEvent.ON_ERROR,
        ),
        request_timeout: float = 10.0,
        max_attempts: int = 5,
        first_pause: float = 0.5,
        max_queued: int = 1000,
        private_network: bool = False,
        priority: HookPriority = HookPriority.BACKGROUND,
    ) -> None:
        if max_attempts < 1 or max_queued < 1 or not request_timeout > 0 or first_pause < 0:
            raise HookInvalid(
                f"WebhookNotifierHook: max_attempts and max_queued are at least 1, request_timeout is above 0 and "
                f"first_pause not below, got {max_attempts}, {max_queued}, {request_timeout}, {first_pause}."
            )
        self._target = target_of(url, private_network=private_network)
        self._secret, self.events, self.priority = secret, events, priority
        self._timeout, self._attempts, self._pause = request_timeout, max_attempts, first_pause
        self._most = max_queued
        self._changed = forks.condition()
        self._failed: deque[WebhookNotification] = deque(maxlen=_MOST_FAILED)
        self._counts = {"sent": 0, "retried": 0, "failed": 0, "refused": 0}
        self._begin_anew()
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """What waits in a parent's queue is the parent's to send."""
        self._queue: deque[WebhookNotification] = deque()
        self._busy = self._alive = self._closed = False

    # --- what the manager tells --------------------------------------------------------------------------------------

    def execute(self, context: HookContext) -> None:
        """Put one event into the queue.

        Raises:
            HookPoolDead: it is full, closed, or there is no thread; the manager keeps a dead letter.
        """
        event = context.event.name if context.event is not None else ""
        self._put(WebhookNotification(delivery=uuid4().hex, event=event, body=_body(event, context)))

    def on_init(self) -> None:
        """Take notifications, also after an earlier manager closed it."""
        with self._changed:
            self._closed = False

    def on_cleanup(self) -> None:
        """Deliver what is queued, for at most a few seconds, then stop."""
        self.close()

    # --- what people ask ---------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing is queued or on its way; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver what is queued, for at most ``timeout`` seconds; whether all went out. The rest is undelivered."""
        finished = self.flush(timeout)
        with self._changed:
            self._closed = True
            while self._queue:
                self._give_up(self._queue.popleft(), "the notifier was closed before it was sent")
            self._changed.notify_all()
        return finished

    def undelivered(self) -> tuple[WebhookNotification, ...]:
        """The last thousand notifications that did not arrive, oldest first, each with its failure."""
        return tuple(self._failed.copy())

    def resend(self) -> int:
        """Queue every undelivered notification again; how many."""
        with self._changed:
            again, room = 0, 0 if self._closed else self._most - len(self._queue)
            while self._failed and again < room:
                self._put(self._failed.popleft())
                again += 1
            return again

    def statistics(self) -> dict[str, int]:
        """How many were sent, tried again, given up, refused for lack of room; and how many wait."""
        with self._changed:
            return {**self._counts, "queued": len(self._queue) + self._busy}

    # --- the queue ---------------------------------------------------------------------------------------------------

    def _put(self, notification: WebhookNotification) -> None:
        with self._changed:
            if self._closed or len(self._queue) >= self._most:
                self._counts["refused"] += 1
                why = "the notifier is closed" if self._closed else f"{self._most} notifications wait already"
                raise HookPoolDead(f"{self._target}: {why}; this one was not queued. Is the receiver down?")
            if not self._alive:
                self._start()
            self._queue.append(notification)
            self._changed.notify_all()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="mckpt-webhook", daemon=True).start()
        except RuntimeError as error:  # no thread to be had
            self._counts["refused"] += 1
            raise HookPoolDead(f"{self._target}: no thread to send notifications: {error}.") from error
        self._alive = True

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    self._alive = False
                    return
                notification = self._queue.popleft()
                self._busy = True
            try:
                self._deliver(notification)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next one must still go out
                with self._changed:
                    self._give_up(notification, f"{type(error).__name__}: {error}")
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _deliver(self, notification: WebhookNotification) -> None:
        for attempt in range(1, self._attempts + 1):
            try:
                deliver(self._target, notification.body, self._headers(notification), timeout=self._timeout)
            except DeliveryFailed as error:
                if not error.passing or attempt == self._attempts or not self._rest(attempt, error):
                    raise
            else:
                with self._changed:
                    self._counts["sent"] += 1
                return

    def _rest(self, attempt: int, error: DeliveryFailed) -> bool:
        """Pause before another try, longer each time; whether there will be one."""
        grown = self._pause * 2 ** (attempt - 1) * _chance.uniform(0.75, 1.25)  # not a secret
        pause = min(_LONGEST_PAUSE, grown) if error.retry_after is None else error.retry_after
        _LOG.info("%s, is tried again in %.2g s", error, pause)
        with self._changed:
            self._counts["retried"] += 1
            return not self._changed.wait_for(lambda: self._closed, timeout=pause)

    def _headers(self, notification: WebhookNotification) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "model-checkpoint",
            "X-Checkpoint-Event": notification.event,
            "X-Checkpoint-Delivery": notification.delivery,
        }
        if self._secret is not None:
            headers[HEADER] = sign(self._secret, notification.body, at=int(time.time()))
        return headers

    def _give_up(self, notification: WebhookNotification, why: str) -> None:
        self._counts["failed"] += 1
        self._failed.append(WebhookNotification(**{**_fields(notification), "failure": why}))
        _LOG.error("%s: notification of %s did not arrive: %s", self._target, notification.event, why)


def _fields(notification: WebhookNotification) -> dict[str, Any]:
    return {"delivery": notification.delivery, "event": notification.event, "body": notification.body}


def _body(event: str, context: HookContext) -> bytes:
    data, left_out = plain_data(context.data)
    told = {
        "event": event,
        "at": time.time(),
        "checkpoint_id": context.checkpoint_id,
        "experiment_id": context.experiment_id,
        "data": data,
        "left_out": list(left_out),
    }
    return json.dumps(told, allow_nan=False).encode()
