"""What codecs cost in bytes for the model in the form, before anything runs."""

from collections.abc import Collection, Mapping

import streamlit as st

from scalebook.app import resources
from scalebook.app.shared import form
from scalebook.training.config import sparse_tables
from scalebook.training.config.class_fields import Chosen, in_words
from scalebook.training.config.codecs import DIRECTIONS, codec_as, codecs_of
from scalebook.training.config.description import Description, Field
from scalebook.training.config.model_parameters import ModelParameters, known
from scalebook.training.config.workload import workload
from scalebook.training.planning.quantities import shown
from scalebook.training.ps.policy.codecs import in_halves
from scalebook.training.ps.policy.frames import Codec, numel

EVERY_S = 1.0
PENDING = "Bytes of each codec: reading the model, a few seconds."
LOOKING = "Checking this against the model, a few seconds."


def labels(config: form.Config, description: Description, field: Field) -> dict[str, str]:
    """Of each codec that the field offers, by class path: `topk 0.01 · 27 kB, 1/100`, with its usual settings.
    Empty for another field, and where the model is not known."""
    found = known(config, description) if field.name in DIRECTIONS else None
    if found is None or not found.parameters:
        return {}
    said, plain = {}, found.width * numel(found.shapes)
    for option in field.options:
        usual = Chosen(option, {})
        if (codec := codec_as(usual)) is not None:
            nbytes = exchanged(codec, found, 1)[0] if field.name == "codec" else codec.nbytes(found.shapes, found.width)
            cost = shown(nbytes, "B") if nbytes == plain else f"{shown(nbytes, 'B')}, {_share(nbytes, plain)}"
            said[option.class_path] = f"{in_words(usual) or usual.word} · {cost}"
    return said


def draw(config: form.Config, description: Description, drawn: Collection[str]) -> None:
    """A line below the strategy's fields. The model is looked at, behind the page, once a list of codecs is among the
    fields `drawn`, or something is chosen that does not go with every model."""
    codecs = codecs_of(config, description)
    found = known(config, description)
    offered = any(path.rpartition(".")[2] in DIRECTIONS for path in drawn)
    asked = offered or any(codec.codes for codec in codecs.values())
    if found is None and (asked or sparse_tables.asks(config, description)):
        _wait(config, description, PENDING if asked else LOOKING)
    elif found is not None and found.problem and asked:
        st.caption(f"Bytes are unknown before the run: {found.problem}")
    elif codecs and found is not None and found.parameters:
        st.caption(words(codecs, found, workload(config, description).workers))


@st.fragment(run_every=EVERY_S)
def _wait(config: form.Config, description: Description, words: str) -> None:
    st.caption(words)
    if known(config, description) is None:
        resources.look_at_model(config, description)
    else:
        st.rerun()


def words(codecs: Mapping[str, Codec], found: ModelParameters, workers: int) -> str:
    """`For this model, a push is 27 kB (1/100 of 2.7 MB); a pull is 2.7 MB, uncompressed.`"""
    plain = found.width * numel(found.shapes)
    if "codec" in codecs:
        sent, taken = exchanged(codecs["codec"], found, workers)
        return f"Per update, a worker sends {_of(sent, plain)} and receives {_of(taken, plain)}."
    push, pull = (codecs[name].nbytes(found.shapes, found.width) for name in ("push_codec", "pull_codec"))
    return f"For this model, a push is {_of(push, plain)}; a pull is {_of(pull, plain)}."


def exchanged(codec: Codec, found: ModelParameters, workers: int) -> tuple[int, int]:
    """Bytes that a worker of DDP hands in and takes out for an update."""
    if in_halves(codec):
        return 2 * numel(found.shapes), 2 * numel(found.shapes)
    frame = codec.nbytes(found.shapes, found.width)
    return frame, frame * (max(1, workers - 1) if codec.codes else 1)


def _of(nbytes: int, plain: int) -> str:
    """With the ratio to fp32 where it is another."""
    if nbytes == plain:
        return f"{shown(nbytes, 'B')}, uncompressed"
    return f"{shown(nbytes, 'B')} ({_share(nbytes, plain)} of {shown(plain, 'B')})"


def _share(nbytes: int, plain: int) -> str:
    ratio = plain / max(1, nbytes)
    return f"1/{ratio:.3g}" if ratio > 1 else f"{1 / ratio:.3g} times"
