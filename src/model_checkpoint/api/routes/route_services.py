"""Route services: what every route works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from model_checkpoint.api.jobs.job_runner import JobRunner
from model_checkpoint.api.jobs.plan_store import PlanDrawer
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.api.live.changes import ChangeLog
from model_checkpoint.api.live.event_stream import EventHub


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteServices:
    """The shelves, the work under way, the plans that were shown, and who listens."""

    library: Library
    jobs: JobRunner
    plans: PlanDrawer
    changes: ChangeLog
    hub: EventHub

    def close(self) -> None:
        """End it all."""
        self.hub.end()
        self.jobs.close()
        self.library.close()


def _services_of(request: Request) -> RouteServices:
    services: RouteServices = request.app.state.services
    return services


WithServices = Annotated[RouteServices, Depends(_services_of)]
