"""The form of an experiment, and the parts beside it: batch sizes, YAML, command."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.app import state
from scalebook.app.compose import data, fields
from scalebook.app.compose.data import ClockSource
from scalebook.app.shared import form, html
from scalebook.app.shared.widgets import code_block, confirmed_anyway, number_box, press_button
from scalebook.app.shared.words import plural, sentence
from scalebook.training.base import Problem
from scalebook.training.experiments import (
    GPU_SHARE,
    MATMUL,
    SEED,
    THREADS,
    VIRTUAL,
    ClassInfo,
    Description,
    Experiment,
    Field,
    FieldType,
    Group,
    LearningRate,
    PeersSettings,
    check_value,
)
from scalebook.training.notebook import HELP, MOST_REPEATS

SWITCH_HELP: Final = (
    "Simulates more workers than this machine can run. One process computes every gradient with the parameters that "
    "the worker would have. Seconds are virtual and come from the times that you set."
)
MEANING: Final = (
    "One process simulates all workers, and computes every gradient with the parameters that the worker would have. "
    "Seconds are virtual and come from the times that you set, so 100 workers take as many virtual seconds as 100 "
    "nodes would."
)
OFFER: Final = "Try more workers than this machine can run. One process simulates them all."
TIMES: Final = (
    "Where the times come from: a Plan of an experiment with this model and data, a recorded run with real workers "
    "(including its slowest gradients), or a number."
)
SECONDS: Final = (
    "Virtual seconds that a worker needs per gradient. Set stragglers, groups, links, deaths and server time under "
    "`clock`, as "
    "YAML."
)
EXAMPLE: Final = (
    "0.1 s is an example, not a measurement. To measure the time, press **Plan** on the card of an experiment with "
    "this model and data. Then choose that Plan here."
)
NUMBER: Final = ClockSource("A number", {})
WRITTEN: Final = ClockSource("From the clock", {})


def simulated_workers(
    draft: form.ConfigDraft,
    last: form.ConfigDraft,
    description: Description,
    key: Callable[[str], str],
    slot: Callable[[str], None],
    clock_sources: Callable[[], Sequence[ClockSource]],
) -> list[str]:
    """Draw the switch for simulated workers and their time per gradient, and write both into the config; returns the
    strategy's arguments that the form does not show as fields of their own.

    `last`: the draft of the page's previous run. `key` makes a widget's key from a name; `slot` leaves a place for the
    problems of a dotted path. `clock_sources` returns the sources of times.
    """
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    workers, before, clock = draft.workers(description), draft.is_simulated(), form.CLOCK
    with left:
        simulated = st.toggle("Virtual workers", before, key=key("virtual"), help=SWITCH_HELP)
        st.caption(MEANING if simulated else OFFER)
    if simulated != before:
        (draft.make_simulated if simulated else draft.make_real)(workers)
    if not simulated:
        return ["clock", "host"] if last.is_simulated() else ["clock"]  # a fold carries over what was there
    with left:
        source = _clock_source(draft, key("clock_source"), clock_sources(), is_new=not before)
    with right:
        if source is NUMBER:
            seconds: Any = draft.get(f"{clock}.gradient_s")
            gradient_s = number_box("Seconds per gradient", seconds, key("gradient_s"), hint=SECONDS)
            draft.put(f"{clock}.gradient_s", gradient_s)
            if gradient_s == form.USUAL_GRADIENT_S:
                st.caption(EXAMPLE)
        else:
            slot(f"{clock}.server_s")
        slot(clock)
        slot(f"{clock}.gradient_s")
    return ["clock", "host"]


def _clock_source(draft: form.ConfigDraft, key: str, sources: Sequence[ClockSource], *, is_new: bool) -> ClockSource:
    """Draw the choice of a source of times, and write it into the config. A new clock starts with a measurement by
    Plan, if there is one."""
    is_number = not isinstance(draft.get(f"{form.CLOCK}.gradient_s"), dict)
    before = data.chosen_source(draft, sources) or (NUMBER if is_number else WRITTEN)
    options = list(dict.fromkeys([NUMBER.label, before.label, *(source.label for source in sources)]))
    by_label = {source.label: source for source in (*sources, before, NUMBER)}
    first = sources[0] if is_new and sources and sources[0].is_measured else before
    picked = by_label[st.selectbox("Times", options, options.index(first.label), key=key, help=TIMES)]
    if picked is not before:
        draft.take_clock(picked.clock)
    return picked


def without_switch(argument: Field) -> Field:
    """The field without the choice that the switch stands for."""
    return replace(argument, choices=[choice for choice in argument.choices if choice != VIRTUAL])


MOST_WORKERS = 1024
WORKERS_KEY = "trainer.devices"
WORKERS = "Number of processes that compute gradients. Each has a copy of the model and uses one core (or GPU)."
NO_SCHEDULE = "constant"


def name_box(name: str, suggested: str, key: str) -> str:
    """Draw the box for the name of an experiment; returns what is typed, "" for the suggestion."""
    hint = "Name of the cell and of its runs. If empty, Scalebook generates a name from the config."
    return st.text_input("Name", name, key=key, placeholder=suggested, help=hint).strip()


@dataclass
class ConfigForm:
    """The form of an experiment in one run of the page.

    `draft` is changed field by field. Problems are shown beside their field, but known only after all fields are read:
    so each field leaves a slot, by dotted path, and `show_problems` fills it.
    """

    description: Description
    draft: form.ConfigDraft
    last: form.ConfigDraft
    """The config of the page's previous run."""
    version: int
    gpus: str = ""
    """A sentence on the machines' GPUs, "" without GPUs."""
    look: fields.LookAtModel = field(kw_only=True)
    data_for: Callable[[ClassInfo], ClassInfo | None] = field(kw_only=True)
    """Returns the data that goes with a model, if there is any."""
    clocks: Callable[[], Sequence[ClockSource]] = tuple
    """Returns the sources of times of simulated workers."""
    slots: dict[str, DeltaGenerator] = field(default_factory=dict)
    chosen_here: set[str] = field(default_factory=set)
    """Paths of classes that another choice in this run of the page has changed."""
    refused: list[Problem] = field(default_factory=list)
    """Problems of the fields that are in no description: workers, budget, seeds."""

    def key(self, path: str) -> str:
        return f"compose.{self.version}.{path}"

    def draw(self, name: str, repeats: int, suggest: Callable[[form.ConfigDraft], str]) -> tuple[str, int]:
        """Draw all sections; returns the cell's name ("": take that of `suggest`) and its number of seeds.

        The name is drawn last, in a container on top, because its suggestion depends on all choices below.

        A section whose fields come and go has a container, so that those below keep their place: the browser rebuilds
        a field that moves, and loses what is being typed into it.
        """
        above = st.container()
        st.header("Model and data")
        left, right = st.columns(2)
        with left:
            self._take_data_along(self._class("model", "models", "Model"))
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
            fields.rate_fields(self.draft, self.description, self._field)
        st.header("Budget and seeds")
        repeats = self._budget(repeats)
        self._advanced()
        with above:
            name = self._name(name, suggest(self.draft))
        return name, repeats

    def _slot(self, path: str) -> None:
        self.slots[path] = st.empty()

    def _name(self, name: str, suggested: str) -> str:
        typed = name_box(name, suggested, self.key("name"))
        self._slot("name")
        return typed

    def _class(self, path: str, group: Group, label: str) -> ClassInfo | None:
        """Draw the choice of a class, then its plain fields; the advanced ones behind a title."""
        info = self._choice(path, group, label, getattr(self.description, group))
        if info is not None and info.config_value is None:
            skip = {"data": ("batch_size",), "trainer.strategy": form.HANDLED_STRATEGY_ARGS}.get(path, ())
            self._args(f"{path}.init_args", info, [field for field in info.fields if field.name not in skip])
        return info

    def _take_data_along(self, model: ClassInfo | None) -> None:
        """Choose the data that goes with `model` if that was chosen just now; other data of the user's stays."""
        before = self.last.chosen_class("model", "models", self.description)
        data, goes_along = self.last.chosen_class("data", "data", self.description), None
        if model is not None and model != before:
            goes_along = self.data_for(model)
        if data is not None and data.source == "user" and (before is None or data != self.data_for(before)):
            return
        if goes_along is not None and data != goes_along:
            self.draft.choose("data", goes_along, "data", self.description)
            self.chosen_here.add("data")

    def _choice(self, path: str, group: Group, label: str, entries: Sequence[ClassInfo]) -> ClassInfo | None:
        entries = fields.own_first(entries)
        before = self.draft.chosen_class(path, group, self.description)
        index = next((i for i, entry in enumerate(entries) if entry == before), None)
        # another box once a class becomes known, as its folder is trusted: this one goes on holding none
        key = self.key(path if before else f"{path}.unknown")
        if path in self.chosen_here:
            state.set_widget(key, before)
        info = st.selectbox(
            label,
            entries,
            0 if path in self.chosen_here else index,  # a box whose value is set may have no other default
            format_func=fields.label_of,
            key=key,
            help="\n\n".join(f"**{entry.name}**: {entry.summary}" for entry in entries if entry.summary) or None,
            placeholder=fields.written_label(self.draft.get(path)),
        )
        self._slot(path)
        if info is None:
            return None  # an unknown class stays as it is written, and the validation names it
        self.draft.choose(path, info, group, self.description)
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
        """Draw fields behind a title. Closed, they are not drawn, which halves the page's time, and keep their last
        values."""
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
        """Copy the last value of a hidden field, unless it belongs to another class."""
        owner = path.rsplit(".init_args", 1)[0]
        if owner == path or self.last.get(f"{owner}.class_path") == self.draft.get(f"{owner}.class_path"):
            self.draft.assign(path, field, self.last.value(path, field))

    def _field(self, path: str, field: Field, label: str | None = None) -> Any:
        # The class is part of the key: two classes may have a field of the same name and another default.
        owner = self.draft.get(f"{path.rsplit('.init_args', 1)[0]}.class_path", "")
        key = self.key(f"{owner}:{path}")
        if field.type == "class":
            labels = fields.codec_labels(self.draft, self.description, field)
            value = fields.class_field(self.draft, path, field, key, label, self._field, labels)
        else:
            value = fields.draw_field(self.draft, path, field, key, label)
        self._slot(path)
        return value

    def _strategy(self) -> None:
        was_single = self.draft.get("trainer.strategy", "auto") == "auto"
        workers = 2 if was_single else self.draft.workers(self.description)
        left, middle, right = st.columns([2, 1, 1])
        with left:
            info = self._choice("trainer.strategy", "strategies", "Strategy", self.description.strategies)
        single = info is not None and info.config_value == "auto"
        with middle:
            key = self.key(f"workers.{'single' if single else 'several'}")
            typed = number_box("Workers", 1 if single else workers, key, whole=True, disabled=single, hint=WORKERS)
            self.draft.assign_workers(self._read(WORKERS_KEY, typed, MOST_WORKERS))
        with right:
            data = self.draft.chosen_class("data", "data", self.description)
            batch = next((field for field in data.fields if field.name == "batch_size"), None) if data else None
            if batch is not None:
                self._field("data.init_args.batch_size", batch, "Batch size per worker")
        self._slot(WORKERS_KEY)  # what is said of them is long, and their column narrow
        if self.gpus:
            st.caption(self.gpus)
        machines = st.container()
        if info is not None and info.fields:
            self._strategy_args(info)
        with machines:  # only now it is known whether the workers are virtual
            fields.machine_fields(self.draft, self.description, info, self.key, self._field, self._slot)
        if info is not None and info.fields:
            fields.codec_bytes(self.draft, self.description, drawn=self.slots, look=self.look)

    def _strategy_args(self, info: ClassInfo) -> None:
        """Draw the strategy's arguments: the main ones side by side, the others behind a title."""
        above = "trainer.strategy.init_args"
        self.draft.open_arguments("trainer.strategy", info)
        visible = [field for field in info.fields if field.name in form.SHOWN_STRATEGY_ARGS]
        for place, argument in zip(st.columns(max(1, len(visible))), visible, strict=False):
            with place:
                self._field(f"{above}.{argument.name}", argument)
        hidden = [*form.HANDLED_STRATEGY_ARGS, *form.SHOWN_STRATEGY_ARGS]
        if info.name == "ModelParallel":
            workers = self.draft.workers(self.description)
            hidden += fields.split_fields(self.draft, info, workers, self.key, self._field)
        if any(f"{above}.{argument.name}" == form.CLOCK for argument in info.fields):
            hidden += simulated_workers(self.draft, self.last, self.description, self.key, self._slot, self.clocks)
        rest = [without_switch(field) for field in info.fields if field.name not in hidden]
        folded = [(f"{above}.{field.name}", field) for field in rest]
        if folded:
            self._fold(f"More of {info.name}", above, folded, 2)
        self.draft.close_arguments("trainer.strategy", info)

    def _optimizer(self) -> None:
        model = self.draft.chosen_class("model", "models", self.description)
        if model is not None and model.own_optimizer:
            st.info(f"{model.name} sets the optimizer, learning rate and schedule in its `configure_optimizers`.")
            self.draft.drop("optimizer")
            self.draft.drop("lr_scheduler")
            return
        if self.draft.get("optimizer") is None:
            if model is None and self.draft.get("model") is not None:
                st.info("This model is unknown, so it may set the optimizer, learning rate and schedule itself.")
                return
            self.draft.config["optimizer"] = copy.deepcopy(self.description.default_optimizer)
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
        before = self.draft.chosen_class("lr_scheduler", "lr_schedulers", self.description)
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
            self.draft.drop("lr_scheduler")
        else:
            self.draft.choose("lr_scheduler", info, "lr_schedulers", self.description)
        return info

    def _budget(self, repeats: int) -> int:
        before = self.draft.budget()
        kind_column, amount_column, seeds_column, seed_column = st.columns([2, 1, 1, 1], vertical_alignment="top")
        with kind_column:
            kind = st.segmented_control(
                "Budget", form.BUDGET_KINDS, default=before.kind, required=True, key=self.key("budget"),
                help=(
                    "A run ends after this many epochs (passes over the data by all workers together), updates or "
                    "minutes."
                ),
            )  # fmt: skip
        with amount_column:
            labels = {"epochs": "Epochs", "updates": "Updates", "time": "Minutes"}
            usual: dict[form.BudgetKind, float] = {"epochs": 5, "updates": 1000, "time": 5}
            start = before.value if before.kind == kind else usual[kind]
            typed = number_box(labels[kind], start, self.key(f"budget.{kind}"), whole=kind != "time")
            path = f"trainer.{form.BUDGET_KEYS[kind]}"
            read = (
                self._read(path, typed, None, kind="float", minimum=0.1) if kind == "time" else self._read(path, typed)
            )
            self.draft.assign_budget(form.Budget(kind, read))
        with seeds_column:
            typed = number_box("Seeds", repeats, self.key("repeats"), whole=True, hint=HELP["experiment"]["repeats"])
            wanted = self._read("repeats", typed, MOST_REPEATS)
            repeats = wanted if isinstance(wanted, int) and not self._is_refused("repeats") else repeats
        with seed_column:
            seed = self.draft.value(SEED.name, SEED)
            self.draft.put(SEED.name, fields.value_box(SEED, seed, self.key(SEED.name)))
            self._slot(SEED.name)
        return repeats

    def _read(self, path: str, value: Any, most: int | None = None, *, kind: FieldType = "int",
              minimum: float = 1) -> Any:  # fmt: skip
        """Check the value of a field that is in no description; returns it, and notes its problem."""
        problem = check_value(path, value, Field(path, kind, required=True, minimum=minimum, maximum=most))
        if problem is not None:
            self.refused.append(problem)
        self._slot(path)
        return value

    def _is_refused(self, path: str) -> bool:
        return any(problem.key == path for problem in self.refused)

    def _advanced(self) -> None:
        wanted = [field for field in self.description.trainer if field.name not in form.HANDLED_TRAINER_KEYS]
        share = [(GPU_SHARE.name, GPU_SHARE)] if self.gpus or self.draft.get(GPU_SHARE.name) is not None else []
        of_run = [(THREADS.name, THREADS), (MATMUL.name, MATMUL), *share]
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
                show(f"{sentence(label + problem.message)} {problem.fix}")
        return homeless

    def _home(self, path: str) -> DeltaGenerator | None:
        """The slot of the field, or of its nearest parent."""
        while path and path not in self.slots:
            path = path.rpartition(".")[0]
        return self.slots.get(path)


Intent = Literal["run", "save", "dry run"]
KEYS: Final[dict[Intent, str]] = {"run": "compose-run", "save": "compose-save", "dry run": "compose-dry-run"}
NOT_DONE: Final[dict[Intent, str]] = {"run": "Not run", "save": "Not saved", "dry run": "No dry run"}
MOST_SAID: Final = 3


def buttons(
    wrong: Sequence[Problem], listed: Sequence[Problem], waiting: int, stamp: str, crowd: str, *, offers_dry_run: bool
) -> Intent | None:
    """Draw Run, Save and Dry run, disabled while `wrong` has problems. `waiting`: runs to submit.

    Those of the problems that are `listed` are listed below.
    `stamp` as in `state.Clicks`. Run is disabled, too, until the user confirms the warning `crowd`.
    """
    off = bool(wrong)
    row = st.container(horizontal=True, vertical_alignment="center", key="compose-buttons")
    meant = confirmed_anyway(crowd, f"compose-crowd-{stamp}-{crowd}")
    with row:
        clicked: dict[Intent, bool] = {
            "run": press_button(
                "Run", KEYS["run"], stamp, type="primary", icon=":material/play_arrow:", disabled=off or not meant
            ),
            "save": press_button("Save", KEYS["save"], stamp, icon=":material/save:", disabled=off),
        }
        if offers_dry_run:
            clicked["dry run"] = press_button(
                "Dry run", KEYS["dry run"], stamp, icon=":material/fact_check:", disabled=off or not meant
            )
    dry = " **Dry run** runs one batch of training and validation in the workers. Nothing is recorded."
    st.caption(
        f"**Run** (Ctrl+Enter) saves the experiment and submits {plural(waiting, 'run')}. Save: Ctrl+S."
        + (dry if offers_dry_run else "")
    )
    intent = next((name for name, is_clicked in clicked.items() if is_clicked), None)
    if not wrong and (meant or intent not in ("run", "dry run")):
        return intent
    if not wrong and intent is not None:
        state.clicks().mark_handled(KEYS[intent], done=False)  # clicked before what it asks for had grown
        return None
    why = [str(problem) for problem in listed[:MOST_SAID]]
    why += [f"And {len(listed) - MOST_SAID} more."] if len(listed) > MOST_SAID else []
    if why:
        st.caption(":red[**Fix this to run or save:**] " + " ".join(why))
    if intent:
        state.clicks().mark_handled(KEYS[intent], done=False)
        state.show_message(f"{NOT_DONE[intent]}: fix what is marked in red first.", ":material/error:")
    return None


def sizes(experiment: Experiment) -> None:
    """Draw batch per worker, global and effective; a dash if the data has no batch size."""

    def shown(value: int | None) -> str:
        return "–" if value is None else f"{value:,}"

    html.facts(
        [
            ("batch per worker", shown(experiment.batch.per_worker)),
            ("global batch", shown(experiment.batch.together)),
            ("effective batch", shown(experiment.batch.effective)),
            _rate(experiment.rate),
        ]
    )


def _rate(rate: LearningRate) -> tuple[str, str]:
    """The learning rate that optimizers step with, and its label."""
    if rate.scaled is not None:
        return "scaled learning rate", f"{rate.scaled:g}"
    return "learning rate", "–" if rate.requested is None else f"{rate.requested:g}"


def batch_sentence(experiment: Experiment) -> str:
    """One sentence that explains the effective batch."""
    strategy, batch = experiment.strategy, experiment.batch
    workers, gradients, batches = strategy.workers, strategy.gradients, strategy.batches
    if batch.per_worker is None:
        return "This data has no batch_size."
    gathered = f", and each gradient is accumulated over {batch.accumulate} batches" if batch.accumulate > 1 else ""
    if workers == 1:
        return f"One process uses one batch per update{gathered}."
    if isinstance(strategy, PeersSettings):
        if gradients == workers:
            return (
                f"In each update, all {workers} workers take a step and average parameters with their "
                f"neighbours{gathered}."
            )
        return (
            f"In each update, one of the {workers} workers takes a step and averages parameters with another "
            f"worker{gathered}."
        )
    if batches < workers:
        one = "Each update uses one batch" if batches == 1 else f"Each update averages {batches} batches"
        return f"{one}{gathered}. Each batch is computed by {workers // batches} workers together."
    if gradients == workers:
        return f"Each update averages the gradients of all {workers} workers{gathered}."
    if strategy.computed > gradients:
        return f"Each update averages the first {gradients} of {strategy.computed} gradients{gathered}."
    if gradients > 1:
        return f"Each update averages {gradients} gradients from any workers{gathered}."
    return (
        f"Each gradient of the {workers} workers is a separate update{gathered}. Between a worker's updates, "
        "other workers' updates arrive."
    )


def text(yaml_text: str, commands: str, file_name: str, *, shows_yaml: bool) -> None:
    """Draw the YAML as it would be saved, unless it is edited, and the commands that run it without a browser."""
    if shows_yaml:
        html.draw('<div class="sb-eyebrow">YAML</div>')
        code_block(yaml_text, "yaml")
    html.draw('<div class="sb-eyebrow">Run from the command line</div>')
    code_block(commands, wrap=True)
    st.download_button("Download YAML", yaml_text, file_name, "text/yaml", type="tertiary", icon=":material/download:",
                       on_click="ignore")  # fmt: skip
