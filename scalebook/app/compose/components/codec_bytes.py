"""What codecs cost in bytes for the model in the form, before anything runs."""

from collections.abc import Mapping

import streamlit as st

from scalebook.app import resources
from scalebook.app.shared.services import form
from scalebook.training.config import sparse_tables
from scalebook.training.config.codecs import codecs_of
from scalebook.training.config.description import Description
from scalebook.training.config.model_parameters import ModelParameters, known
from scalebook.training.config.workload import workload
from scalebook.training.planning.quantities import shown
from scalebook.training.ps.policy.codecs import in_halves
from scalebook.training.ps.policy.frames import Codec, numel

EVERY_S = 1.0
PENDING = "Bytes of a push and a pull: the model is being looked at, which takes some seconds."
LOOKING = "Whether this goes with the model: it is being looked at, which takes some seconds."


def draw(config: form.Config, description: Description) -> None:
    """A line below the strategy's fields. The model is looked at, behind the page, once a codec is chosen, or something
    that does not go with every model."""
    codecs = codecs_of(config, description)
    found = known(config, description)
    has_codec = any(codec.codes for codec in codecs.values())
    if found is None and (has_codec or sparse_tables.asks(config, description)):
        _wait(config, description, PENDING if has_codec else LOOKING)
    elif found is not None and found.problem and has_codec:
        st.caption(f"Bytes are not known before the run: {found.problem}")
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
    """`A push has 27 kB, 1/100 of the gradient's 2.7 MB; a pull has 2.7 MB.`"""
    plain = found.width * numel(found.shapes)
    if "codec" in codecs:
        sent, taken = exchanged(codecs["codec"], found, workers)
        return f"For each update a worker hands in {_of(sent, plain)}, and takes out {_of(taken, plain)}."
    push, pull = (codecs[name].nbytes(found.shapes, found.width) for name in ("push_codec", "pull_codec"))
    return f"For this model a push has {_of(push, plain)}, and a pull {_of(pull, plain)}."


def exchanged(codec: Codec, found: ModelParameters, workers: int) -> tuple[int, int]:
    """Bytes that a worker of DDP hands in and takes out for an update."""
    if in_halves(codec):
        return 2 * numel(found.shapes), 2 * numel(found.shapes)
    frame = codec.nbytes(found.shapes, found.width)
    return frame, frame * (max(1, workers - 1) if codec.codes else 1)


def _of(nbytes: int, plain: int) -> str:
    """With the ratio to fp32 where it is another."""
    if nbytes == plain:
        return f"{shown(nbytes, 'B')}, as they are"
    ratio = plain / max(1, nbytes)
    share = f"1/{ratio:.3g}" if ratio > 1 else f"{1 / ratio:.3g} times"
    return f"{shown(nbytes, 'B')} ({share} of {shown(plain, 'B')})"
