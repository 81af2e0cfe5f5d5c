"""Fields of the form: plain fields, fields that name a class, and sections of several fields."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import streamlit as st

from scalebook.app.shared import form
from scalebook.app.shared.widgets import number_box, number_text
from scalebook.app.shared.words import plain, scaled_words
from scalebook.training.base import ConfigError, one_line
from scalebook.training.base.files import yaml
from scalebook.training.engine.rules import Codec, numel
from scalebook.training.experiments import (
    DIRECTIONS,
    NOISE_SCALE,
    STRATEGY_NAMES,
    ChosenClass,
    ClassInfo,
    Description,
    Experiment,
    Field,
    ModelParameters,
    asks_for_parameters,
    cached_parameters,
    check_value,
    classes,
    lr_scaling,
    made_codec,
)
from scalebook.training.pricing import format_quantity

UNITS = {"s": "s", "ms": "ms", "mb": "MB", "gb": "GB"}


def draw_field(draft: form.ConfigDraft, path: str, field: Field, key: str, label: str | None = None) -> Any:
    """Draw the widget of `field` with the config's value at `path`; write its value into the config, and return it."""
    value = value_box(field, draft.value(path, field), key, label)
    draft.assign(path, field, value)
    return value


def value_box(field: Field, value: Any, key: str, label: str | None = None) -> Any:
    """Draw the widget of `field` with `value`, and return its value.

    A value that the field's type cannot hold (a config written by hand may have any) is shown as text, to be mended.
    """
    label = label or field_words(field.name)
    hint = help_of(field)
    if field.type in ("int", "float") and not isinstance(value, list | dict):
        return _number_field(field, value, label, key, hint)
    if value is not None and check_value(field.name, value, field) is not None:
        return free_text(label, value, key, hint)
    if field.type == "bool":
        return _bool(field, value, label, key, hint)
    if field.type == "enum":
        return _enum(field, value, label, key, hint)
    if field.type == "str" and (value is None or isinstance(value, str)):
        text = st.text_input(label, value or "", key=key, help=hint, placeholder="none" if field.nullable else "")
        return text or (None if field.nullable or value is None else "")
    return free_text(label, value, key, hint)


def field_words(name: str) -> str:
    """`batch_size` -> `Batch size`, `timeout_s` -> `Timeout, s`."""
    labels = {"lr": "Learning rate", "seed_everything": "First seed", "gpu_share": "GPU share"}
    stem, _, unit = name.rpartition("_")
    if stem and unit in UNITS:
        return f"{field_words(stem)}, {UNITS[unit]}"
    return labels.get(name) or name.replace("_", " ").strip().capitalize()


def help_of(field: Field) -> str:
    """The tooltip in two lines: the field's docstring; its key, bounds and default."""
    facts = [f"`{field.name}`"]
    if field.minimum is not None:
        facts.append(f"{'above' if field.exclusive_minimum else 'at least'} {field.minimum:g}")
    if field.maximum is not None:
        facts.append(f"{'below' if field.exclusive_maximum else 'at most'} {field.maximum:g}")
    if not field.required:
        facts.append(f"default {plain(field.default)}")
    return "\n\n".join(part for part in (field.help.strip(), ", ".join(facts)) if part)


def _bool(field: Field, value: Any, label: str, key: str, hint: str) -> bool | None:
    if field.nullable:
        options: list[bool | None] = [None, True, False]
        names = {None: "default", True: "yes", False: "no"}
        return st.selectbox(
            label,
            options,
            options.index(value),
            format_func=names.__getitem__,
            key=key,
            help=hint,
            placeholder=names[None],
        )
    return st.toggle(label, bool(value), key=key, help=hint)


def _enum(field: Field, value: Any, label: str, key: str, hint: str) -> Any:
    options = ([None] if field.nullable and None not in field.choices else []) + field.choices
    index = options.index(value) if value in options else (None if field.required else 0)
    empty = "Choose one" if field.required else plain(field.default)  # what an emptied one means
    return st.selectbox(label, options, index, format_func=plain, key=key, help=hint, placeholder=empty)


def _number_field(field: Field, value: Any, label: str, key: str, hint: str) -> int | float | str | None:
    """The number; or the text that is not one, which the validation refuses."""
    empty = "none" if field.nullable else ("" if field.default is None else f"{number_text(field.default)} (default)")
    return number_box(label, value, key, whole=field.type == "int", hint=hint, empty=empty)


def free_text(label: str, value: Any, key: str, hint: str) -> Any:
    """Draw a box for YAML on one line. Text that is not YAML is returned as it is, and refused by the validation."""
    text = st.text_input(label, _one_line(value), key=key, help=hint, placeholder="none")
    try:
        return yaml.load(text) if text.strip() else None
    except ConfigError:
        return text


def _one_line(value: Any) -> str:
    return "" if value is None else (value if isinstance(value, str) else plain(value))


DrawField = Callable[[str, Field], Any]
"""Draws the field at a dotted path, writes its value into the config, and returns it."""


def class_field(
    draft: form.ConfigDraft,
    path: str,
    field: Field,
    key: str,
    label: str | None,
    inner: DrawField,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Draw a field whose value names a class and, with `inner`, the arguments of that class; write the shortest form
    of the value at `path`.

    `labels`: what the list of choices shows for a class instead of its name, by class path.

    A value that names none of the classes is shown as text, to be mended.
    """
    value = draft.value(path, field)
    if value is not None and classes.choose_class(value, field) is None:
        shortened = free_text(label or field_words(field.name), value, key, help_of(field))
        draft.assign(path, field, shortened)
        return shortened
    info = _class_choice(field, value, key, label, labels)
    if info is None:
        draft.assign(path, field, None)
        return None
    before = classes.choose_class(value, field)
    args = copy.deepcopy(dict(before.args)) if before is not None and before.info == info else {}
    draft.put(path, {"class_path": info.class_path, "init_args": args})
    if info.summary:
        st.caption(info.summary)
    for argument in info.fields:
        inner(f"{path}.init_args.{argument.name}", argument)
    shortened = classes.shortest_form(draft.get(path), field)
    draft.assign(path, field, shortened)
    return shortened


def _class_choice(field: Field, value: Any, key: str, label: str | None, labels: Mapping[str, str]) -> ClassInfo | None:
    options: list[ClassInfo | None] = [None, *field.classes] if field.nullable else [*field.classes]
    before = classes.choose_class(value, field)
    index = options.index(before.info if before else None) if before or field.nullable else None
    info: ClassInfo | None = st.selectbox(
        label or field_words(field.name),
        options,
        index,
        format_func=lambda info_: "none" if info_ is None else labels.get(info_.class_path, _class_name(info_)),
        key=key,
        help="\n\n".join([help_of(field), *(_class_line(option) for option in field.classes if option.summary)]),
        placeholder="none" if field.nullable else "Choose one",
    )
    return info


def own_first(entries: Sequence[ClassInfo]) -> list[ClassInfo]:
    """The user's classes first, then Scalebook's, each in their order."""
    return sorted(entries, key=lambda info: info.source != "user")


def label_of(info: ClassInfo) -> str:
    """The class in a list of choices: `PixelCNN`, `Mine (yours)`; with its module if two classes share a name,
    `Digits (yours, my_lab.data)`."""
    name = "single" if info.config_value == "auto" else info.config_value or info.name
    words = STRATEGY_NAMES.get(name, info.name)
    module, _, alone = words.rpartition(".")
    whose = ", ".join(word for word in ("yours" if info.source == "user" else "", module) if word)
    return (alone if module else words[:1].upper() + words[1:]) + (f" ({whose})" if whose else "")


def written_label(value: Any) -> str:
    """The placeholder of a choice without a selection: the name of the unknown class in the config."""
    return one_line(classes.read_class(value).name or "", 60) or "Choose one"


def _class_name(info: ClassInfo) -> str:
    return info.config_value or info.name


def _class_line(info: ClassInfo) -> str:
    return f"**{_class_name(info)}**: {info.summary}"


DrawLabelled = Callable[[str, Field, str], Any]
"""Draws the field at a dotted path with a label, writes its value into the config, and returns it."""
RULE, PER, WARMUP = (replace(lr_scaling.FIELDS[0], default="none"), *lr_scaling.FIELDS[1:])
"""In the form, a config without the key means `none`."""
AS_TEXT: Final = Field(lr_scaling.KEY, "json", "A mapping with the keys rule, per and warmup_epochs.", nullable=True)


def rate_fields(draft: form.ConfigDraft, description: Description, field: DrawLabelled) -> None:
    """Draw the section on learning rate and batch: how the rate scales with the batch, and whether to measure the noise
    scale. Without scaling the config gets no `lr_scaling` key."""
    left, middle, right = st.columns([2, 1, 1])
    with left:
        scales = _rate_rule(draft, field)
    if scales:
        with middle:
            field(f"{lr_scaling.KEY}.per", PER, "Reference batch size, samples")
        with right:
            field(f"{lr_scaling.KEY}.warmup_epochs", WARMUP, "Warm-up, epochs")
        if words := scaled_words(Experiment(draft.config, description)):
            st.caption(words)
    field("noise_scale", NOISE_SCALE, "Measure the gradient noise scale")


def _rate_rule(draft: form.ConfigDraft, field: DrawLabelled) -> bool:
    """Draw the choice of the rule; returns whether the rule has more fields. A value that is not a mapping is shown as
    text."""
    written = draft.get(lr_scaling.KEY)
    if written is not None and not isinstance(written, dict):
        field(lr_scaling.KEY, AS_TEXT, "Scaling with batch size")
        return False
    rule = classes.mapping(written).get("rule")
    if written is not None and rule is None:
        draft.put(f"{lr_scaling.KEY}.rule", lr_scaling.FIELDS[0].default)
    if field(f"{lr_scaling.KEY}.rule", RULE, "Scaling with batch size") != "none":
        return True
    if rule == "none":
        draft.put(f"{lr_scaling.KEY}.rule", rule)  # as it is written
    else:
        draft.drop(lr_scaling.KEY)
    return False


FIXED: Final = "fixed number"


def machine_fields(
    draft: form.ConfigDraft,
    description: Description,
    strategy: ClassInfo | None,
    key: Callable[[str], str],
    field: Callable[[str, Field, str], Any],
    slot: Callable[[str], None],
) -> None:
    """Draw the number of nodes and, if `strategy` lets nodes join and leave during training, the fewest workers; write
    both into the config. Draws nothing for a single process, for peers and for virtual workers.

    `key` makes a widget's key from a name, `field` draws the field at a dotted path, `slot` leaves a place for the
    problems of a dotted path.
    """
    is_alone = strategy is not None and (strategy.config_value == "auto" or strategy.name == "Peers")
    is_on_one = is_alone or draft.is_simulated()
    if is_on_one and draft.get("trainer.num_nodes", 1) == 1:
        return
    left, right = st.columns(2)
    nodes = next((argument for argument in description.trainer if argument.name == "num_nodes"), None)
    with left:
        if nodes is not None:
            field(f"trainer.{nodes.name}", nodes, "Nodes")
    if strategy is None or not draft.may_range(strategy):
        return
    with right:
        before = draft.get(f"{form.WORKERS}.min")
        hint = next(argument.help for argument in strategy.fields if argument.name == "workers")
        fewest = number_box("Fewest workers", before, key("fewest"), whole=True, hint=hint, empty=FIXED)
        slot(form.WORKERS)
    draft.assign_fewest(fewest, description)


SPLITS: Final[Mapping[str, str]] = {
    "Tensor": "The layers in the model's plan are divided, and a group of workers computes each batch together. If "
    "there are several groups, they share the parameters.",
    "Sharded parameters": "Each worker stores a part of every layer, and gathers the whole layer to compute it (FSDP).",
    "Pipeline stages": "Each stage has some of the layers. A batch passes through the stages in parts (microbatches).",
}
"""How a model may be split, and what that means."""
DEGREES: Final[Mapping[str, tuple[str, ...]]] = {
    "Tensor": ("tensor", "shard"),
    "Sharded parameters": ("shard",),
    "Pipeline stages": ("stages", "microbatches", "schedule"),
}
"""The strategy's arguments that belong to each split; the first of two or more is asked for."""
DEGREE_LABELS: Final = {"tensor": "Workers per layer", "stages": "Stages"}


def split_fields(
    draft: form.ConfigDraft, info: ClassInfo, workers: object, key: Callable[[str], str], field: DrawLabelled
) -> list[str]:
    """Draw how the model is split and into how many parts, and write both into the config; returns the names of the
    arguments that belong to another split, or are drawn here."""
    args = {argument.name: argument for argument in info.fields}
    degrees = {name: draft.get(f"{form.STRATEGY}.{name}") for name in DEGREE_LABELS}
    named = {"tensor": "Tensor", "stages": "Pipeline stages"}
    before = next(
        (named[name] for name in ("stages", "tensor") if degrees[name] not in (None, 1)), "Sharded parameters"
    )
    split = st.segmented_control(
        "How is the model split?", list(SPLITS), default=before, required=True, key=key("split"),
        help="\n\n".join(f"**{name}**: {words}" for name, words in SPLITS.items()),
    )  # fmt: skip
    st.caption(SPLITS[split])
    others = [name for names in DEGREES.values() for name in names if name not in DEGREES[split]]
    for name in others:
        draft.drop(f"{form.STRATEGY}.{name}")
    degree = DEGREES[split][0]
    if degree not in DEGREE_LABELS:
        return others
    if degrees[degree] in (None, 1):
        draft.put(f"{form.STRATEGY}.{degree}", workers if isinstance(workers, int) and workers > 1 else 2)
    field(f"{form.STRATEGY}.{degree}", args[degree], DEGREE_LABELS[degree])
    return [*others, degree]


LookAtModel = Callable[[Experiment], object]
"""Reads the model of a config in the background; called repeatedly until the model is known."""
EVERY_S = 1.0
PENDING = "Reading the model to compute the bytes of each codec. This takes a few seconds."
LOOKING = "Checking this against the model. This takes a few seconds."


def codec_labels(draft: form.ConfigDraft, description: Description, field: Field) -> dict[str, str]:
    """The label of each codec with default settings, by class path: `topk 0.01 · 27 kB, 1/100`. Empty for another
    field, and while the model is not known."""
    model = cached_parameters(Experiment(draft.config, description)) if field.name in DIRECTIONS else None
    if model is None or not model.parameters:
        return {}
    labels, plain = {}, model.width * numel(model.shapes)
    for option in field.options:
        usual = ChosenClass(option, {})
        if (codec := made_codec(usual)) is not None:
            nbytes = exchanged(codec, model, 1)[0] if field.name == "codec" else codec.nbytes(model.shapes, model.width)
            cost = (
                format_quantity(nbytes, "B")
                if nbytes == plain
                else f"{format_quantity(nbytes, 'B')}, {_share(nbytes, plain)}"
            )
            labels[option.class_path] = f"{classes.in_words(usual) or usual.word} · {cost}"
    return labels


def codec_bytes(draft: form.ConfigDraft, description: Description, drawn: Collection[str], look: LookAtModel) -> None:
    """Draw a line below the strategy's fields: how many bytes the codecs send for the form's model.

    `look` reads the model in the background once a list of codecs is among the fields `drawn`, or a choice does not
    fit every model.
    """
    experiment = Experiment(draft.config, description)
    codecs, model = experiment.strategy.codecs, cached_parameters(experiment)
    offered = any(path.rpartition(".")[2] in DIRECTIONS for path in drawn)
    wanted = offered or any(codec.codes for codec in codecs.values())
    if model is None and (wanted or asks_for_parameters(experiment)):
        _wait(experiment, look, PENDING if wanted else LOOKING)
    elif model is not None and model.problem and wanted:
        st.caption(f"The number of bytes is not known before the run: {model.problem}")
    elif codecs and model is not None and model.parameters:
        st.caption(byte_words(codecs, model, experiment.strategy.workers))


@st.fragment(run_every=EVERY_S)
def _wait(experiment: Experiment, look: LookAtModel, words: str) -> None:
    st.caption(words)
    if cached_parameters(experiment) is None:
        look(experiment)
    else:
        st.rerun()


def byte_words(codecs: Mapping[str, Codec], model: ModelParameters, workers: int) -> str:
    """`For this model, a push is 27 kB (1/100 of 2.7 MB); a pull is 2.7 MB, uncompressed.`"""
    plain = model.width * numel(model.shapes)
    if "codec" in codecs:
        sent, taken = exchanged(codecs["codec"], model, workers)
        return f"Per update, a worker sends {_of(sent, plain)} and receives {_of(taken, plain)}."
    push, pull = (codecs[name].nbytes(model.shapes, model.width) for name in ("push_codec", "pull_codec"))
    return f"For this model, a push sends {_of(push, plain)}, and a pull sends {_of(pull, plain)}."


def exchanged(codec: Codec, model: ModelParameters, workers: int) -> tuple[int, int]:
    """Bytes that a DDP worker sends and receives in one update."""
    if codec.in_halves:
        return 2 * numel(model.shapes), 2 * numel(model.shapes)
    frame = codec.nbytes(model.shapes, model.width)
    return frame, frame * (max(1, workers - 1) if codec.codes else 1)


def _of(nbytes: int, plain: int) -> str:
    """The bytes, with their ratio to fp32 unless they are equal."""
    if nbytes == plain:
        return f"{format_quantity(nbytes, 'B')}, uncompressed"
    return f"{format_quantity(nbytes, 'B')} ({_share(nbytes, plain)} of {format_quantity(plain, 'B')})"


def _share(nbytes: int, plain: int) -> str:
    ratio = plain / max(1, nbytes)
    return f"1/{ratio:.3g}" if ratio > 1 else f"{1 / ratio:.3g} times"
