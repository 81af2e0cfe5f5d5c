"""The form of an experiment: draws a config with the fields that the description names, returns the config it says now.

Problems belong beside their field, but are known only when all fields have been read: each field leaves a slot behind,
which `show_problems` fills.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.app.compose.components import class_field, codec_bytes, fields, machines, rate_fields, virtual_workers
from scalebook.app.compose.services.clock_sources import ClockSource
from scalebook.app.shared import form
from scalebook.app.shared.widgets import number_box
from scalebook.app.shared.words import sentence
from scalebook.training.config.description import ClassInfo, Description, Field, FieldType, Group
from scalebook.training.config.fields import check_value
from scalebook.training.config.validate import GPU_SHARE, MATMUL
from scalebook.training.errors import Problem
from scalebook.training.notebook.bodies import MOST_REPEATS

MOST_WORKERS = 1024
WORKERS_KEY = "trainer.devices"
WORKERS = "Processes that compute gradients, each with a copy of the model and its own core (or GPU)."
SEEDS = "Number of runs, each with the next seed. Three give an interval."
SEED = Field("seed_everything", "int", "Seed of the first run.", default=1, minimum=0, maximum=2**32 - 1)
NO_SCHEDULE = "constant"


@dataclass
class ConfigForm:
    """One drawing of the form. `config` is changed field by field; `slots` are places for problems, by dotted path."""

    description: Description
    config: form.Config
    last: form.Config
    """What the page said in its run before this one."""
    version: int
    gpus: str = ""
    """Which the machines have, in words; "" where they have none."""
    clocks: Callable[[], Sequence[ClockSource]] = tuple
    """Where the times of virtual workers can come from."""
    slots: dict[str, DeltaGenerator] = field(default_factory=dict)
    refused: list[Problem] = field(default_factory=list)
    """What is wrong with fields that the description does not know: workers, budget, seeds."""

    def key(self, path: str) -> str:
        return f"compose.{self.version}.{path}"

    def draw(self, name: str, repeats: int, suggest: Callable[[form.Config], str]) -> tuple[str, int]:
        """All sections; returns the cell's name, "" to take the one that `suggest` makes, and its number of seeds.

        The name is drawn last, in its place above: what it suggests follows from all choices below.

        A section whose fields come and go is in a container, so that those below keep their place on the page: the
        browser makes what moves anew, and forgets what is being typed into it.
        """
        above = st.container()
        st.header("Model and data")
        left, right = st.columns(2)
        with left:
            self._class("model", "models", "Model")
        with right:
            self._class("data", "data", "Data")
        st.header("Strategy and workers")
        with st.container():
            self._strategy()
        st.header("Optimizer")
        with st.container():
            self._optimizer()
        st.header("Learning rate and batch")
        with st.container():
            rate_fields.draw(self.config, self.description, self._field)
        st.header("Budget and seeds")
        repeats = self._budget(repeats)
        self._advanced()
        with above:
            name = self._name(name, suggest(self.config))
        return name, repeats

    def _slot(self, path: str) -> None:
        self.slots[path] = st.empty()

    def _name(self, name: str, suggested: str) -> str:
        said = st.text_input(
            "Name",
            name,
            key=self.key("name"),
            placeholder=suggested,
            help="Names the cell and its runs. Empty: made from the choices below.",
        )
        self._slot("name")
        return said.strip()

    def _class(self, path: str, group: Group, label: str) -> ClassInfo | None:
        """A choice of class, and its plain fields below; the advanced ones in a fold."""
        info = self._choice(path, group, label, getattr(self.description, group))
        if info is not None and info.config_value is None:
            skip = {"data": ("batch_size",), "trainer.strategy": form.HANDLED_STRATEGY_ARGS}.get(path, ())
            self._args(f"{path}.init_args", info, [field for field in info.fields if field.name not in skip])
        return info

    def _choice(self, path: str, group: Group, label: str, entries: Sequence[ClassInfo]) -> ClassInfo | None:
        entries = class_field.own_first(entries)
        before = form.chosen(self.config, path, group, self.description)
        index = next((i for i, entry in enumerate(entries) if entry == before), None)
        info = st.selectbox(
            label,
            entries,
            index,
            format_func=class_field.label_of,
            # another box once a class becomes known, as its folder is trusted: this one goes on holding none
            key=self.key(path if before else f"{path}.unknown"),
            help="\n\n".join(f"**{entry.name}**: {entry.summary}" for entry in entries if entry.summary) or None,
            placeholder=class_field.written(form.get(self.config, path)),
        )
        self._slot(path)
        if info is None:
            return None  # an unknown class stays as it is written, and the validation names it
        form.choose(self.config, path, info, group, self.description)
        if info.summary:
            st.caption(info.summary)
        return info

    def _args(self, path: str, info: ClassInfo, wanted: Sequence[Field]) -> None:
        for argument in wanted:
            if not argument.advanced:
                self._field(f"{path}.{argument.name}", argument)
        if advanced := [argument for argument in wanted if argument.advanced]:
            self._fold(f"More of {info.name}", path, [(f"{path}.{argument.name}", argument) for argument in advanced])

    def _fold(self, title: str, key: str, wanted: Sequence[tuple[str, Field]], columns: int = 1) -> None:
        """Fields behind a title. While it is closed they are not drawn, which halves the time of the page; they keep
        what they said last."""
        for path, argument in wanted:
            self._carry(path, argument)
        fold = st.expander(title, key=self.key(f"fold.{key}"), on_change="rerun")
        if fold.open:
            with fold:
                places = st.columns(columns)
                for i, (path, argument) in enumerate(wanted):
                    with places[i % columns]:
                        self._field(path, argument)

    def _carry(self, path: str, field: Field) -> None:
        """While a field is folded away, keep what was typed into it, unless that was for another class."""
        owner = path.rsplit(".init_args", 1)[0]
        if owner == path or form.get(self.last, f"{owner}.class_path") == form.get(self.config, f"{owner}.class_path"):
            form.assign(self.config, path, field, form.value_of(self.last, path, field))

    def _field(self, path: str, field: Field, label: str | None = None) -> Any:
        # The class is part of the key: two classes may have a field of the same name and another default.
        owner = form.get(self.config, f"{path.rsplit('.init_args', 1)[0]}.class_path", "")
        key = self.key(f"{owner}:{path}")
        if field.type == "class":
            labels = codec_bytes.labels(self.config, self.description, field)
            said = class_field.draw(self.config, path, field, key, label, self._field, labels)
        else:
            said = fields.draw(self.config, path, field, key, label)
        self._slot(path)
        return said

    def _strategy(self) -> None:
        was_single = form.get(self.config, "trainer.strategy", "auto") == "auto"
        workers = 2 if was_single else form.workers_of(self.config, self.description)
        left, middle, right = st.columns([2, 1, 1])
        with left:
            info = self._choice("trainer.strategy", "strategies", "Strategy", self.description.strategies)
        single = info is not None and info.config_value == "auto"
        with middle:
            key = self.key(f"workers.{'single' if single else 'several'}")
            said = number_box("Workers", 1 if single else workers, key, whole=True, disabled=single, hint=WORKERS)
            form.assign_workers(self.config, self._read(WORKERS_KEY, said, MOST_WORKERS))
        with right:
            data = form.chosen(self.config, "data", "data", self.description)
            batch = next((field for field in data.fields if field.name == "batch_size"), None) if data else None
            if batch is not None:
                self._field("data.init_args.batch_size", batch, "Batch size per worker")
        self._slot(WORKERS_KEY)  # what is said of them is long, and their column narrow
        if self.gpus:
            st.caption(self.gpus)
        machines.draw(self.config, self.description, info, self.key, self._field, self._slot)
        if info is not None and info.fields:
            self._strategy_args(info)
            codec_bytes.draw(self.config, self.description, drawn=self.slots)

    def _strategy_args(self, info: ClassInfo) -> None:
        """The strategy's arguments: those about what it does side by side, those about how it does it folded."""
        above = "trainer.strategy.init_args"
        form.open_arguments(self.config, "trainer.strategy", info)
        shown = [field for field in info.fields if field.name in form.SHOWN_STRATEGY_ARGS]
        for place, argument in zip(st.columns(max(1, len(shown))), shown, strict=False):
            with place:
                self._field(f"{above}.{argument.name}", argument)
        hidden = [*form.HANDLED_STRATEGY_ARGS, *form.SHOWN_STRATEGY_ARGS]
        if any(f"{above}.{argument.name}" == form.CLOCK for argument in info.fields):
            hidden += virtual_workers.draw(self.config, self.last, self.description, self.key, self._slot, self.clocks)
        rest = [virtual_workers.real(field) for field in info.fields if field.name not in hidden]
        folded = [(f"{above}.{field.name}", field) for field in rest]
        if folded:
            self._fold(f"More of {info.name}", above, folded, 2)
        form.close_arguments(self.config, "trainer.strategy", info)

    def _optimizer(self) -> None:
        model = form.chosen(self.config, "model", "models", self.description)
        if model is not None and model.own_optimizer:
            st.info(f"{model.name} sets optimizer, learning rate and schedule in its own `configure_optimizers`.")
            form.drop(self.config, "optimizer")
            form.drop(self.config, "lr_scheduler")
            return
        if form.get(self.config, "optimizer") is None:
            if model is None and form.get(self.config, "model") is not None:
                st.info("This model is unknown; it may set its own optimizer, learning rate and schedule.")
                return
            self.config["optimizer"] = copy.deepcopy(self.description.default_optimizer)
        left, middle, right = st.columns([2, 1, 1])
        with left:
            info = self._choice("optimizer", "optimizers", "Optimizer", self.description.optimizers)
        rate = next((field for field in info.fields if field.name == "lr"), None) if info else None
        with middle:
            if rate is not None:
                self._field("optimizer.init_args.lr", rate)
        with right:
            schedule = self._schedule()
        scheduled = [(f"lr_scheduler.init_args.{field.name}", field) for field in (schedule.fields if schedule else ())]
        for path, argument in scheduled:
            if argument.required:
                self._field(path, argument)
        if info is not None:
            rest = [(f"optimizer.init_args.{field.name}", field) for field in info.fields if field.name != "lr"]
            rest += [(path, field) for path, field in scheduled if not field.required]
            self._fold(f"More of {info.name}" + (f" and {schedule.name}" if schedule else ""), "optimizer", rest, 2)

    def _schedule(self) -> ClassInfo | None:
        entries = self.description.lr_schedulers
        before = form.chosen(self.config, "lr_scheduler", "lr_schedulers", self.description)
        info = st.selectbox(
            "Schedule",
            [None, *entries],
            entries.index(before) + 1 if before in entries else 0,
            format_func=lambda info: info.name if info else NO_SCHEDULE,
            placeholder=NO_SCHEDULE,
            key=self.key("lr_scheduler"),
            help="How the learning rate changes during the run.",
        )
        self._slot("lr_scheduler")
        if info is None:
            form.drop(self.config, "lr_scheduler")
        else:
            form.choose(self.config, "lr_scheduler", info, "lr_schedulers", self.description)
        return info

    def _budget(self, repeats: int) -> int:
        before = form.budget_of(self.config)
        kind_column, amount_column, seeds_column, seed_column = st.columns([2, 1, 1, 1], vertical_alignment="top")
        with kind_column:
            kind = st.segmented_control(
                "Budget", form.BUDGET_KINDS, default=before.kind, required=True, key=self.key("budget"),
                help="Ends a run after this many passes over the data (by all workers together), updates, or minutes.",
            )  # fmt: skip
        with amount_column:
            labels = {"epochs": "Epochs", "updates": "Updates", "time": "Minutes"}
            usual: dict[form.BudgetKind, float] = {"epochs": 5, "updates": 1000, "time": 5}
            start = before.value if before.kind == kind else usual[kind]
            said = number_box(labels[kind], start, self.key(f"budget.{kind}"), whole=kind != "time")
            path = f"trainer.{form.BUDGET_KEYS[kind]}"
            read = self._read(path, said, None, kind="float", minimum=0.1) if kind == "time" else self._read(path, said)
            form.assign_budget(self.config, form.Budget(kind, read))
        with seeds_column:
            said = number_box("Seeds", repeats, self.key("repeats"), whole=True, hint=SEEDS)
            wanted = self._read("repeats", said, MOST_REPEATS)
            repeats = wanted if isinstance(wanted, int) and not self._is_refused("repeats") else repeats
        with seed_column:
            seed = form.value_of(self.config, SEED.name, SEED)
            form.put(self.config, SEED.name, fields.widget(SEED, seed, self.key(SEED.name)))
            self._slot(SEED.name)
        return repeats

    def _read(self, path: str, said: Any, most: int | None = None, *, kind: FieldType = "int",
              minimum: float = 1) -> Any:  # fmt: skip
        """What was typed into a box of a field that the description does not know, with what is wrong with it."""
        problem = check_value(path, said, Field(path, kind, required=True, minimum=minimum, maximum=most))
        if problem is not None:
            self.refused.append(problem)
        self._slot(path)
        return said

    def _is_refused(self, path: str) -> bool:
        return any(problem.key == path for problem in self.refused)

    def _advanced(self) -> None:
        threads = Field("threads", "int", "CPU threads of each worker.", default=1, minimum=1, maximum=1024)
        wanted = [field for field in self.description.trainer if field.name not in form.HANDLED_TRAINER_KEYS]
        share = [(GPU_SHARE.name, GPU_SHARE)] if self.gpus or form.get(self.config, GPU_SHARE.name) is not None else []
        of_run = [("threads", threads), (MATMUL.name, MATMUL), *share]
        paths = [*of_run, *((f"trainer.{field.name}", field) for field in wanted)]
        self._fold("Advanced: threads and trainer", "trainer", paths, 3)

    def show_problems(self, problems: Sequence[Problem]) -> list[Problem]:
        """Fill the slots; returns the problems that have no field here."""
        homeless: list[Problem] = []
        for problem in problems:
            slot = self._home(problem.key)
            if slot is None:
                homeless.append(problem)
            else:
                show = slot.error if problem.severity == "error" else slot.warning
                label = "Workers: " if slot is self.slots.get(WORKERS_KEY) else ""
                show(f"{sentence(label + problem.message)} {problem.remedy}")
        return homeless

    def _home(self, path: str) -> DeltaGenerator | None:
        """The slot of the field itself, or of the nearest thing around it."""
        while path and path not in self.slots:
            path = path.rpartition(".")[0]
        return self.slots.get(path)
