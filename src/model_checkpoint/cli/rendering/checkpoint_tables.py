"""Checkpoint tables: what ls, show and the marking verbs print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from model_checkpoint.cli.quantities import ago, counted, day_and_time, moment, number, size
from model_checkpoint.cli.rendering.charts import sparkline
from model_checkpoint.cli.rendering.json_text import print_json
from model_checkpoint.cli.rendering.terminal import clean, clean_lines, lay, remark, say, table_of
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.plan import contends, step_name

if TYPE_CHECKING:  # some bring NumPy or SQLAlchemy, which a listing does without
    from model_checkpoint.checkpoint.keeping.kept_reasons import KeptReason
    from model_checkpoint.cli.finding.metric_history import MetricHistory
    from model_checkpoint.cli.finding.runs import RunLine
    from model_checkpoint.engine.reading.figures.number_figures import NumberFigures
    from model_checkpoint.engine.root.describe import Description, LayoutLine, TensorLine
    from model_checkpoint.engine.root.run_position import RunPosition

_SHOWN = 8
_CONSEQUENCES = {
    "model": "there are no weights to go on with",
    "optimizer": "its moments begin at zero, the loss jumps",
    "scheduler": "the learning rate begins anew",
    "rng": "random numbers are other ones",
    "step": "counting begins at 0",
}


def listing_json(infos: Sequence[CheckpointInfo], reasons: Mapping[str, Sequence[KeptReason]]) -> None:
    """All of `mckpt ls` as one value; ``reasons`` are null for what no catalog knows."""
    print_json([{**asdict(info), "reasons": reasons.get(info.id)} for info in infos])


def listing(root: str, infos: Sequence[CheckpointInfo], *, searched: bool = False) -> None:
    """The table of `mckpt ls`."""
    if not infos:
        say(f"{clean(root)}: {'the search fits no checkpoint' if searched else 'no committed checkpoint yet'}.")
        return
    names = sorted({name for info in infos for name in info.metrics})
    best = {name: _best(name, infos) for name in names}
    columns = _Columns(infos)
    table = table_of(*columns.titles(names), right=("step", "size", "shared", *map(clean, names)))
    for info in infos:
        metrics = [_measured(info, name, best[name]) for name in names]
        table.add_row(*columns.cells(info, metrics))
    say(_heading(root, infos))
    lay(table)
    if any(best.values()) and len(infos) > 1:
        say("* the best of its column")
    _one_copy(root, infos)
    for info in infos:
        if info.problem:
            remark(info.problem)


class _Columns:
    """Which columns a listing needs: what says the same of every checkpoint is left out."""

    def __init__(self, infos: Sequence[CheckpointInfo]) -> None:
        self._step = any(info.step is None or info.prefix != step_name(info.step) for info in infos)
        self._shared, self._parity = any(info.shared_with for info in infos), any(info.parity for info in infos)
        self._ranks = any(info.world_size > 1 for info in infos)
        self._marked = any(map(_marks, infos))
        self._state = any(info.problem or info.left_out for info in infos)

    def titles(self, metrics: Sequence[str]) -> list[str]:
        """The headings."""
        return [
            "name",
            *["step"] * self._step,
            "saved (UTC)",
            "size",
            *["ranks"] * self._ranks,
            *["shared"] * self._shared,
            *["parity"] * self._parity,
            *map(clean, metrics),
            *["state"] * self._state,
            *["marks"] * self._marked,
        ]

    def cells(self, info: CheckpointInfo, metrics: Sequence[str]) -> list[str]:
        """One row."""
        return [
            clean(info.prefix),
            *[_step(info)] * self._step,
            day_and_time(info.timestamp),
            size(info.size_bytes),
            *[str(info.world_size)] * self._ranks,
            *[size(info.shared_bytes)] * self._shared,
            *[_parity(info)] * self._parity,
            *metrics,
            *[_state(info)] * self._state,
            *[_marks(info)] * self._marked,
        ]


def _heading(root: str, infos: Sequence[CheckpointInfo]) -> str:
    total = size(sum(info.size_bytes for info in infos))
    latest = max((info.timestamp.timestamp() for info in infos if info.timestamp), default=None)
    when = "" if latest is None else f", last saved {ago(latest)}"
    return f"[bold]{clean(root)}[/]: {counted(len(infos), 'checkpoint')}, {total}{when}"


def _best(name: str, infos: Sequence[CheckpointInfo]) -> float | None:
    """The best value of a metric among several; None if only one has it."""
    from model_checkpoint.cli.finding.metric_history import minimises

    found = [info.metrics.get(name) for info in infos if contends(info.metadata)]
    values = [value for value in found if isinstance(value, (int, float)) and value == value]
    return (min if minimises(name) else max)(values) if len(values) > 1 else None


def _measured(info: CheckpointInfo, name: str, best: float | None) -> str:
    value = info.metrics.get(name)
    is_best = best is not None and value == best and contends(info.metadata)
    return f"[bold green]{number(value)}*[/]" if is_best else clean(number(value))


def _state(info: CheckpointInfo) -> str:
    if info.left_out:
        return f"[yellow]incomplete[/], without {clean(', '.join(info.left_out))}"
    return "[red]unusable[/]" if info.problem else "[green]committed[/]"


def _marks(info: CheckpointInfo) -> str:
    """Its pin and tags, and whether there is a note."""
    words = ["pinned"] if info.pinned else []
    return ", ".join([*words, *map(clean, info.tags), *(["(note)"] if info.note else [])])


def _parity(info: CheckpointInfo) -> str:
    return clean(info.parity) if info.protected or not info.parity else f"[yellow]{clean(info.parity)}, missing[/]"


def _step(info: CheckpointInfo) -> str:
    return "-" if info.step is None else str(info.step)


def _one_copy(root: str, infos: Sequence[CheckpointInfo]) -> None:
    """Say which checkpoints are damaged together, and what all take in truth."""
    sharing = [info for info in infos if info.shared_with]
    if sharing:
        from model_checkpoint.engine.root.shared_files import stored_bytes

        total = sum(info.size_bytes for info in infos)
        say(
            f"{len(sharing)} of {len(infos)} share files, of which there is one copy: {size(total)} in all, "
            f"{size(stored_bytes(root))} on the medium. Save without incremental=True for a second copy."
        )


def runs(found: Sequence[RunLine], *, as_json: bool) -> None:
    """The table of `mckpt ls` on a folder of runs."""
    if as_json:
        print_json(list(found))
        return
    table = table_of(
        "run", "checkpoints", "newest", "saved (UTC)", "size of it", "metrics", right=("checkpoints", "newest")
    )
    for line in found:
        newest = line.newest
        metrics = ", ".join(f"{clean(name)}={clean(number(value))}" for name, value in newest.metrics.items())
        table.add_row(
            clean(line.root),
            str(line.checkpoints),
            _step(newest),
            day_and_time(newest.timestamp),
            size(newest.size_bytes),
            metrics,
        )
    lay(table)


def description(told: Description, place: RunPosition | None, histories: Sequence[MetricHistory]) -> None:
    """What `mckpt show` prints before any tensor."""
    info = told.info
    saved = "" if info.timestamp is None else f", saved {moment(info.timestamp, seconds=True)} UTC"
    say(f"[bold]{clean(info.path)}[/]")
    say(f"step {_step(info)}, {size(info.size_bytes)}{saved}, id {clean(info.id[:12])}")
    _what_goes_with_it(info)
    say("")
    if told.backend:
        _files(told)
    else:
        _parts(told)
    if histories:
        _metrics(info, histories)
    if place is not None:
        _where_it_was(place)
    _ranks(told)
    if told.unshared:
        say(f"shared memory, stored apart: {', '.join(map(clean, told.unshared))}")


def _parts(told: Description) -> None:
    table = table_of("part", "kind", "class", "tensors", "size", right=("tensors", "size"))
    for part in told.parts:
        table.add_row(clean(part.name), part.kind, clean(part.class_name), str(part.tensors), size(part.nbytes))
    lay(table)


def _files(told: Description) -> None:
    """Of a checkpoint whose inside only its backend knows: who that is, and what there is to open."""
    say(f"written by the storage backend [bold]{clean(told.backend)}[/]; a manager that has it loads it")
    table = table_of("file", "written as", "size", right=("size",))
    for one in told.files:
        table.add_row(clean(one.name), clean(one.path), size(one.nbytes))
    lay(table)


def _what_goes_with_it(info: CheckpointInfo) -> None:
    """Metadata, marks, copies, and others that share its files."""
    plain = {key: value for key, value in info.metadata.items() if not (key == "run" and isinstance(value, dict))}
    if plain:
        say("metadata: " + ", ".join(f"{clean(key)}={clean(number(value))}" for key, value in plain.items()))
    if marks := _marks(info):
        say(f"marks: {marks}{': ' + clean(info.note) if info.note else ''}")
    for title, text in (("parity", _parity(info)), ("mirror", clean(info.mirror))):
        if text:
            say(f"{title}: {text}")
    if info.shared_with:
        others = ", ".join(map(clean, info.shared_with[:_SHOWN])) + (", ..." if len(info.shared_with) > _SHOWN else "")
        say(f"{size(info.shared_bytes)} are one copy with {others}")


def _metrics(info: CheckpointInfo, histories: Sequence[MetricHistory]) -> None:
    most = max(len(one.values) for one in histories)
    over = f"over {counted(most, 'checkpoint')}"
    table = table_of("metric", "here", over, "best", right=("here",))
    for one in histories:
        where = "here" if one.best_step == info.step else f"at step {one.best_step}"
        best = "-" if one.best is None else f"{number(one.best)} {where}"
        table.add_row(clean(one.name), clean(number(one.here)), sparkline(one.values), best)
    lay(table)


def _where_it_was(run: RunPosition) -> None:
    """The run's place, and whether numbers go on as if nothing had happened."""
    exact = "[green]bit for bit[/]" if run.exact else f"[yellow]not bit for bit:[/] {clean('; '.join(run.reasons))}"
    say(f"run: step {run.step}, epoch {run.epoch}, batch {run.batch} of it; a resume goes on {exact}")


def _ranks(told: Description) -> None:
    """Who wrote it, and how its tensors lay on them."""
    if told.ranks:
        each = sorted(share.nbytes for share in told.ranks)
        spread = size(each[0]) if each[0] == each[-1] else f"{size(each[0])} to {size(each[-1])}"
        say(f"ranks: {len(told.ranks)} wrote it, {spread} each; any other number can load it")
    elif told.info.world_size > 1:
        say(f"ranks: {told.info.world_size}; any other number can load it")
    if told.layouts:
        table = table_of("tensors", "mesh", "how they lay on it", right=("tensors",))
        for line in told.layouts:
            how = ", ".join(line.placements) or f"in parts, on {counted(len(line.ranks), 'rank')}"
            table.add_row(str(line.tensors), _mesh(line), clean(how))
        lay(table)


def _mesh(line: LayoutLine) -> str:
    names = line.names or [""] * len(line.mesh)
    sides = (f"{name}={length}" if name else str(length) for name, length in zip(names, line.mesh, strict=False))
    return clean(" x ".join(sides)) or "-"


def lacking(told: Description) -> None:
    """What a resume from it would miss, and what that means; nobody can say it of what a backend wrote."""
    if told.backend:
        return
    if not told.lacking:
        kinds = ("scheduler", "scaler")
        more = "".join(f" {kind}," for kind in kinds if any(part.kind == kind for part in told.parts))
        say(f"[green]a resume has all it needs[/]: model, optimizer,{more} random generators, step")
        return
    say(f"[yellow]a resume would lack:[/] {', '.join(told.lacking)}")
    for what in told.lacking:
        if what in _CONSEQUENCES:
            say(f"  without {what} {_CONSEQUENCES[what]}")


def kept_by(reasons: Sequence[KeptReason]) -> None:
    """Which rules speak for keeping it, and what each says of it."""
    if not reasons:
        say("[yellow]kept by no rule[/]: the next prune by the rules of its run takes it")
        return
    say("kept by:")
    for one in reasons:
        say(f"  {clean(one.rule)}: {clean(one.why)}")


def description_json(
    told: Description,
    place: RunPosition | None,
    reasons: Sequence[KeptReason] | None,
    lines: Sequence[TensorLine],
    figures: Mapping[str, NumberFigures | None],
) -> None:
    """All of `mckpt show` as one value."""
    tensors = [{**msgspec.structs.asdict(line), "figures": figures.get(line.name)} for line in lines]
    whole: dict[str, Any] = {**msgspec.structs.asdict(told), "tensors": tensors, "run": place, "reasons": reasons}
    print_json(whole)


def removed(infos: Sequence[CheckpointInfo], *, dry_run: bool, as_json: bool) -> None:
    """One line on each checkpoint that `mckpt rm` put into the trash."""
    if as_json:
        print_json(list(infos))
        return
    for info in infos:
        root = info.path.removesuffix(f"/checkpoints/{info.prefix}")
        back = f"`mckpt restore {quote(f'{root}@{info.prefix}')}`"
        told = "would go to the trash" if dry_run else f"moved to the trash; {clean(back)} brings it back"
        say(f"{clean(info.path)} ({size(info.size_bytes)}): {told}")


def moved(info: CheckpointInfo, what: str, *, as_json: bool) -> None:
    """One line on a checkpoint that came back or was marked."""
    if as_json:
        print_json(info)
        return
    say(f"{clean(info.path)}: {clean_lines(what)}")
