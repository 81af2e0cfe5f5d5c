"""What a run takes of its machine, over time; and who holds which devices."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from scalebook.app.navigation import RUNS
from scalebook.app.runs.services.devices import DeviceState, ElsewhereState, HeldBy
from scalebook.app.shared import charts, html, style
from scalebook.app.shared.charts import Series
from scalebook.app.shared.words import figure
from scalebook.training.jobs.usage import Usage

HEIGHT = 240
BY_WORKER: Final = {"GPU busy by worker, %": ("busy", 100.0), "GPU memory by worker, MB": ("memory_mb", 1.0)}
"""Title, and of which field, times what."""
FULL_C = 85.0
"""A GPU is called hot from here on."""


def over_time(samples: Sequence[Usage]) -> None:
    """CPU and memory; of runs on GPUs also theirs. Nothing before the first sample."""
    if not samples:
        return
    st.header("CPU and memory")
    seconds = [sample.seconds for sample in samples]
    memory = [sample.memory_mb for sample in samples]
    shown = [
        ("CPU cores busy", [Series("CPU cores", seconds, [sample.cores for sample in samples], charts.PALETTE[0])]),
        ("memory of all processes, MB", [Series("memory", seconds, memory, charts.PALETTE[0])]),
    ]
    uuids = list(dict.fromkeys(gpu.uuid for sample in samples for gpu in sample.gpus))
    for title, field, times in (("GPU busy, %", "busy", 100.0), ("GPU memory, MB", "memory_mb", 1.0),
                                ("GPU temperature, °C", "temperature_c", 1.0)):  # fmt: skip
        lines = [_gpu_line(samples, uuid, i, field, times) for i, uuid in enumerate(uuids)]
        told = [line for line in lines if line.x]  # not every GPU tells everything
        shown += [(title, told)] if told else []
    by_worker = _by_worker(samples)
    shown += by_worker
    columns = st.columns(2, gap="medium")
    for i, (title, lines) in enumerate(shown):
        drawn = charts.lines(lines, x_title="seconds", title=title, dark=style.dark(), height=HEIGHT)
        drawn.update_yaxes(rangemode="tozero")
        with columns[i % 2]:
            charts.draw(drawn, f"usage-{title}", f"{title} against seconds")
    if uuids and len(by_worker) < len(BY_WORKER):
        unknown = [title for title in BY_WORKER if not any(drawn.startswith(title) for drawn, _ in by_worker)]
        st.caption(
            f"Unknown: {'; '.join(unknown)}. NVML does not report it here, as in most containers and MIG instances."
        )


def _by_worker(samples: Sequence[Usage]) -> list[tuple[str, list[Series]]]:
    """A line for each worker on each of its GPUs; no chart of what NVML tells of none."""
    numbers = {uuid: i for i, uuid in enumerate(dict.fromkeys(gpu.uuid for one in samples for gpu in one.gpus))}
    keys = sorted({(one.process, one.uuid) for sample in samples for one in sample.workers}, key=_in_order)
    shown = []
    for title, (field, times) in BY_WORKER.items():
        lines = list[Series]()
        for process, uuid in keys[: len(charts.PALETTE)]:
            points = [
                (sample.seconds, times * told)
                for sample in samples
                for one in sample.workers
                if (one.process, one.uuid) == (process, uuid) and (told := getattr(one, field)) is not None
            ]
            name = f"{process or 'the run'}, GPU {numbers.get(uuid, '?')}"
            lines.append(Series(name, [x for x, _ in points], [y for _, y in points], charts.PALETTE[len(lines)]))
        if told_lines := [line for line in lines if line.x]:
            more = f" (the first {len(lines)} of {len(keys)})" if len(keys) > len(lines) else ""
            shown.append((f"{title}{more}", told_lines))
    return shown


def _in_order(key: tuple[str, str]) -> tuple[int, str]:
    process, uuid = key
    return (int(process.rpartition(" ")[2] or 0) if process else -1), uuid


def _gpu_line(samples: Sequence[Usage], uuid: str, index: int, field: str, times: float) -> Series:
    points = [
        (sample.seconds, times * told)
        for sample in samples
        for gpu in sample.gpus
        if gpu.uuid == uuid and (told := getattr(gpu, field)) is not None
    ]
    colour = charts.PALETTE[index % len(charts.PALETTE)]
    return Series(f"GPU {index}", [x for x, _ in points], [y for _, y in points], colour)


def devices(state: DeviceState) -> None:
    """A row for each run that holds devices, and what is free; then a row for each GPU."""
    rows = [[_who(holder), html.text(_numbers(holder.cores)), html.text(_gpus(holder))] for holder in state.held]
    rows.append([html.text("free", "dim"), html.text(_numbers(state.free_cores) or "–"),
                 html.text(_numbers(state.free_gpus) or "–")])  # fmt: skip
    html.draw(html.table(["Held by", "Cores", *(["GPUs"] if state.gpus else [])],
                         rows if state.gpus else [row[:2] for row in rows]))  # fmt: skip
    if state.elsewhere:
        html.draw(html.table(["Machine", "Held by", "Cores", "GPUs"], _elsewhere(state.elsewhere)))
    st.caption(f"Memory: {figure(state.memory_used_mb / 1000, 3)} of {figure(state.memory_mb / 1000, 3)} GB in use.")
    if state.about_gpus:
        st.caption(state.about_gpus)
    if state.gpus:
        gpu_rows = [
            [
                html.text(f"{gpu.index} · {gpu.name}"),
                html.number(f"{gpu.busy:.0%}" if gpu.busy is not None else ""),
                html.number(f"{_gb(gpu.used_mb)} of {_gb(gpu.memory_mb)}"),
                html.number("" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}"
                            + (" (hot)" if gpu.temperature_c >= FULL_C else "")),
            ]
            for gpu in state.gpus
        ]  # fmt: skip
        html.draw(html.table(["GPU", "busy", "memory, GB", "temperature, °C"], gpu_rows, numeric=range(1, 4)))


def _elsewhere(machines: Sequence[ElsewhereState]) -> list[list[html.Cell]]:
    """The machines of the cluster: a row for each run there, and what is free."""
    rows = []
    for machine in machines:
        name = html.text(machine.name)
        rows += [
            [name, _who(holder), html.text(_numbers(holder.cores)), html.text(_numbers(holder.gpus) or "–")]
            for holder in machine.held
        ]
        if machine.words:
            rows.append([name, html.text(machine.words, "dim"), html.text("–"), html.text("–")])
        else:
            free = [html.text(_numbers(numbers) or "–") for numbers in (machine.free_cores, machine.free_gpus)]
            rows.append([name, html.text("free", "dim"), *free])
    return rows


def _who(holder: HeldBy) -> html.Cell:
    return html.link(holder.name, RUNS.url(run=holder.run_id))


def _gpus(holder: HeldBy) -> str:
    """`1 (25 %)` of a GPU that it leaves room on."""
    share = f" ({holder.share:.0%})" if holder.share < 1 else ""
    return f"{_numbers(holder.gpus)}{share}" if holder.gpus else "–"


def _gb(memory_mb: float | None) -> str:
    """ "–" where a GPU does not tell, or has none of its own."""
    return f"{memory_mb / 1024:.1f}" if memory_mb is not None else "–"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
