"""`scalebook describe`: the classes that a config may name, as JSON. It imports torch after it has read its options."""

from collections.abc import Sequence
from pathlib import Path

from scalebook.training.base import safe_path, trust
from scalebook.training.base.files import CommandParser


def main(argv: Sequence[str]) -> int:
    """Exit code 0. Raises ConfigError for mistakes."""
    options = parser().parse_args(argv)
    with safe_path.importing():
        from scalebook.training.cli import describe
    return describe.main(options)


def parser() -> CommandParser:
    """The parser of `scalebook describe`."""
    parser = CommandParser(
        "scalebook describe",
        about="Print the classes that a config can use, with their arguments, types, defaults and help, as JSON.\n\n"
        "These are models, data sets, strategies, optimizers and schedulers from Scalebook, from libraries and from "
        "the workspace's modules.",
        example="describe PixelCNN",
        page="reference/config.md",
    )
    parser.add_argument("class_path", nargs="?", help="print only this class, such as PixelCNN or torch.optim.Adam")
    parser.add_argument(
        "--parameters", metavar="CONFIG", help="print the shapes of the parameters of this config's model (JSON)"
    )
    parser.add_argument(
        "--logged",
        metavar="CONFIG",
        help="train and validate on two batches of this config, and print the metrics that the model logs (JSON)",
    )
    parser.add_argument(
        "--dry-run", metavar="CONFIG",
        help="train on one batch of this config and validate on another, in its worker processes; print the result "
        "(JSON) and record nothing",
    )  # fmt: skip
    parser.add_argument(
        "--workspace", type=Path, help="the workspace (default: the workspace that contains the current folder)"
    )
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser
