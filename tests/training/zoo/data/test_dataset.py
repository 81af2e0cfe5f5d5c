"""`Dataset`: small files of each format, what is refused, and a model that learns from a folder of images."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from scalebook.training.base.errors import ConfigError
from scalebook.training.zoo.data import DataError, Dataset, ImageSpec
from scalebook.training.zoo.data.tabular import _refuse_other
from tests.training.zoo.models.fitting import fit

ROWS = 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def table() -> pd.DataFrame:
    """Two columns of numbers, one of text, and classes as integers, as texts, and a measure."""
    number = np.arange(ROWS)
    return pd.DataFrame(
        {
            "a": number / 4,
            "b": number % 3,
            "words": [f"w{n}" for n in number],
            "label": number % 2,
            "kind": [("no", "yes")[n % 2] for n in number],
            "price": number / 8,
        }
    )


def written(folder: Path, ending: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"rows{ending}"
    if ending == ".parquet":
        table().to_parquet(path)
    elif ending in (".csv", ".tsv"):
        table().to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    elif ending == ".jsonl":
        table().to_json(path, orient="records", lines=True)
    else:
        path.write_text(json.dumps(table().to_dict("records")), encoding="utf-8")
    return path


def images(folder: Path, mode: str = "L", size: tuple[int, int] = (4, 3)) -> Path:
    """Ten of each of two classes; each of one level, below 100 or above."""
    for number in range(ROWS):
        kind = ("dark", "light")[number % 2]
        (folder / kind).mkdir(parents=True, exist_ok=True)
        level = number if kind == "dark" else 200 + number
        Image.new(mode, size, level if mode == "L" else (level, 0, 255)).save(folder / kind / f"{number:02}.png")
    return folder


def set_up(**arguments: Any) -> Dataset:
    data = Dataset(**arguments)
    data.prepare_data()
    data.setup("fit")
    return data


def rows_of(data: Dataset) -> list[tuple[list[float], float]]:
    """All of both parts, in order."""
    batches = [*data.train_dataloader(), *data.val_dataloader()]
    return sorted((x.tolist(), y.item()) for xs, ys in batches for x, y in zip(xs, ys, strict=True))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv", ".json", ".jsonl"])
def test_files_of_each_format_give_the_same(ending: str, tmp_path: Path) -> None:
    path = written(tmp_path / "data", ending)
    data = set_up(path=str(path), features=["a", "b"], batch_size=4, val_fraction=0.2)
    assert rows_of(data) == [([n / 4, float(n % 3)], n % 2) for n in range(ROWS)]
    sizes = [len(part) for part in data._numbers.values()]
    assert sizes == [16, 4]
    features, labels = next(iter(data.train_dataloader()))
    assert (features.shape, features.dtype, labels.shape, labels.dtype) == ((4, 2), torch.float32, (4,), torch.int64)
    assert rows_of(set_up(path=str(path.parent), features=["a", "b"])) == rows_of(data), "a folder of them"
    assert not hasattr(data, "images")


def test_columns_are_the_numbers_and_labels_may_be_texts_or_measures(tmp_path: Path) -> None:
    path = str(written(tmp_path / "data", ".csv"))
    data = set_up(path=path, label="kind")
    assert [len(x) for x, _ in rows_of(data)] == [4] * ROWS, "a, b, label and price"
    assert {y for _, y in rows_of(data)} == {0, 1}
    measured = set_up(path=path, label="price", features=["a"], normalize=True, limit=5)
    features, labels = next(iter(measured.train_dataloader()))
    assert (len(labels), labels.dtype) == (5, torch.float32)
    torch.testing.assert_close(features.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(features.std(correction=0), torch.tensor(1.0))


def test_another_file_validates(tmp_path: Path) -> None:
    path, other = written(tmp_path / "data", ".csv"), tmp_path / "other.csv"
    table()[:3].to_csv(other, index=False)
    data = set_up(path=str(path), validation=str(other), features=["a"], label="kind")
    assert [len(part) for part in data._numbers.values()] == [ROWS, 3]
    table()[:3].replace("no", "maybe").to_csv(other, index=False)
    with pytest.raises(DataError, match=r"validation: 'maybe' is a label that is not in the training data\. Remove it"):
        set_up(path=str(path), validation=str(other), features=["a"], label="kind")


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_a_folder_of_images(mode: str, channels: int, tmp_path: Path) -> None:
    data = set_up(path=str(images(tmp_path / "images", mode)), batch_size=8, val_fraction=0.2)
    assert data.images == ImageSpec(channels, height=3, width=4, levels=256, classes=2)
    pixels, labels = (torch.cat(of) for of in zip(*data.train_dataloader(), *data.val_dataloader(), strict=True))
    assert (pixels.shape, pixels.dtype, labels.dtype) == ((ROWS, channels, 3, 4), torch.float32, torch.int64)
    seen = sorted(
        (round(image[0, 0, 0].item() * 255), label.item()) for image, label in zip(pixels, labels, strict=True)
    )
    assert seen == sorted((n if n % 2 == 0 else 200 + n, n % 2) for n in range(ROWS))
    if mode == "RGB":
        assert bool((pixels[:, 1] == 0).all())
        assert bool((pixels[:, 2] == 1).all())


def test_classes_of_what_validates_are_those_of_what_trains(tmp_path: Path) -> None:
    for part, classes in (("trains", "abc"), ("validates", "cb"), ("other", "bd")):
        for number, name in enumerate(classes):
            (folder := tmp_path / part / name).mkdir(parents=True)
            Image.new("L", (4, 3), "abcd".index(name)).save(folder / f"{number}.png")
    data = set_up(path=str(tmp_path / "trains"), validation=str(tmp_path / "validates"), batch_size=8)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        for pixels, labels in loader:
            assert (pixels[:, 0, 0, 0] * 255).round().tolist() == labels.tolist()
    with pytest.raises(DataError, match=r"validation: 'd' is a label that is not in the training data\. Remove it"):
        set_up(path=str(tmp_path / "trains"), validation=str(tmp_path / "other"))


def test_images_in_a_table_are_those_in_the_table(tmp_path: Path) -> None:
    import datasets

    files = sorted(images(tmp_path / "images").rglob("*.png"))
    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.Value("int64")})

    def table_of(name: str, rows: list[dict[str, Any]]) -> str:
        columns = {"image": rows, "label": [number // 10 for number in range(ROWS)]}
        path = tmp_path / name
        datasets.Dataset.from_dict(columns, features).cast_column("image", datasets.Image()).to_parquet(path)
        return str(path)

    data = set_up(path=table_of("bytes.parquet", [{"bytes": file.read_bytes(), "path": None} for file in files]))
    assert data.images == ImageSpec(1, height=3, width=4, levels=256, classes=2)
    elsewhere = table_of("paths.parquet", [{"bytes": None, "path": str(file)} for file in files])
    with pytest.raises(DataError, match=r"features: row 0 of image has no image\. Use a table that contains the"):
        set_up(path=elsewhere)


@pytest.mark.parametrize(
    "strategy", ["auto", {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"workers": 2}}]
)
def test_a_model_of_images_learns_from_them(strategy: Any, tmp_path: Path) -> None:
    """Workers are forked after the files have been read, and read the cache."""
    arguments = {"path": str(images(tmp_path / "images")), "batch_size": 4}
    data = {"class_path": "scalebook.training.zoo.data.Dataset", "init_args": arguments}
    model = {"class_path": "scalebook.training.zoo.models.MLPClassifier", "init_args": {"hidden": 8}}
    cli = fit(tmp_path, model, epochs=8, lr=0.1, data=data, trainer={"strategy": strategy})
    assert cli.trainer.callback_metrics["val/accuracy"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({}, "data.init_args.path"),
        ({"path": "a.csv", "hub": "a/b"}, "data.init_args.hub"),
        ({"path": "a.csv", "subset": "x"}, "data.init_args.subset"),
        ({"path": "a.csv", "revision": "x"}, "data.init_args.revision"),
        ({"hub": "csv"}, "data.init_args.hub"),
        ({"hub": "../b/c"}, "data.init_args.hub"),
        ({"hub": "https://x/y"}, "data.init_args.hub"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Dataset(**arguments)  # type: ignore[arg-type]
    assert caught.value.problem.key == key


def test_a_folder_of_the_name_of_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"hub: 'a/b' is a file or folder here\. Use OWNER/NAME, or set path"):
        Dataset(hub="a/b")


def test_offline_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    data = Dataset(hub="ylecun/mnist")
    with pytest.raises(
        DataError, match=r"hub: ylecun/mnist cannot be reached .*Go online once, or copy the data set's files"
    ):
        data.prepare_data()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "nowhere.csv"}, r"path: there is no .*nowhere\.csv\. Correct the path"),
        ({"features": ["c"]}, r"features: there is no column 'c'\. Use some of a, b, words"),
        ({"features": ["words"]}, r"features: words has no numbers"),
        ({"features": ["a", "label"]}, r"features: name columns other than the label"),
        ({"label": "c"}, r"label: there is no column 'c'\. Use one of a, b, words"),
        ({"validation": "nowhere.csv"}, r"validation: there is no "),
    ],
)
def test_what_is_not_there_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = str(written(tmp_path / "data", ".csv"))
    with pytest.raises(DataError, match=rf"^data\.init_args\.{message}"):
        set_up(**{"path": path, **change})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,label\n1,0\n,1\n3,0\n", r"features: a has no finite number in 1 rows"),
        ("a.csv", "a,label\n1,0\n2,\n3,0\n", r"label: label is missing in some rows"),
        ("a.csv", "a,label\n1,-1\n2,0\n3,0\n", r"label: label has integers below 0"),
        ("a.csv", "a,label\n1,0\n", r"path: has 1 samples"),
        ("a.csv", "", r"path: .*a\.csv cannot be read"),
        ("a.parquet", "no table", r"path: .*a\.parquet cannot be read"),
        ("a.json", "{", r"path: .*a\.json cannot be read"),
        ("a.txt", "text", r"path: .*a\.txt has no data\. Name a file, or a folder with one kind"),
        ("a*.csv", "a,label\n1,0\n", r"path: .* Rename the file"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=rf"^data\.init_args\.{message}"):
        set_up(path=str(path))


def test_images_that_cannot_be_used(tmp_path: Path) -> None:
    folder = images(tmp_path / "images")
    (folder / "dark" / "99.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"features: row 10 of image is not an image"):
        set_up(path=str(folder))
    Image.new("L", (5, 3)).save(folder / "dark" / "99.png")
    with pytest.raises(
        DataError, match=r"features: there are images of 4 x 3 pixels and images of 5 x 3\. Resize all images"
    ):
        set_up(path=str(folder))
    (folder / "rows.csv").write_text("a,label\n1,0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"path: .* has files of several kinds \(\.csv, images\)"):
        set_up(path=str(folder))


class Bomb:
    """Unpickled it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_what_would_run_code_is_not_read(tmp_path: Path) -> None:
    import datasets

    ran, path = tmp_path / "it ran", tmp_path / "data" / "a.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Bomb(ran)))
    (path.parent / "data.py").write_text(f"open({str(ran)!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"has no data\. Name a file"):
        set_up(path=str(path.parent))
    with pytest.warns(FutureWarning, match="Pandas builder"):
        builder = datasets.load_dataset_builder("pandas", data_files=str(path), cache_dir=str(tmp_path / "c"))
    with pytest.raises(DataError, match=r"data: somebody/pickled needs the reader pandas, which is not allowed"):
        _refuse_other(builder, "somebody/pickled")
    assert not ran.exists()


def as_of_the_hub(folder: Path, **arguments: Any) -> Dataset:
    """The package datasets chooses readers, subsets and splits of a folder as it does of the Hub's files."""
    data = Dataset(hub="some/body", **arguments)
    object.__setattr__(data.source, "hub", str(folder))
    data.prepare_data()
    data.setup("fit")
    return data


def test_splits_and_subsets_of_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    table().to_parquet(folder / "train-00000.parquet")
    table()[:4].to_parquet(folder / "test-00000.parquet")
    data = as_of_the_hub(folder, features=["a"], validation="test")
    assert [len(part) for part in data._numbers.values()] == [ROWS, 4]
    with pytest.raises(DataError, match=r"split: .* has no split 'tran'\. Use one of train, test"):
        as_of_the_hub(folder, features=["a"], split="tran")
    with pytest.raises(DataError, match=r"validation: .* has no split 'valid'\. Use one of train, test"):
        as_of_the_hub(folder, features=["a"], validation="valid")
    with pytest.raises(DataError, match=r"'nope' not found.*Set subset to one of the data set's subsets"):
        as_of_the_hub(folder, subset="nope")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.txt", "needs the reader text, which is not allowed"),
        ("a.pkl", "cannot be read"),
        ("data.py", "scripts are no"),
    ],
)
def test_of_the_hub_too_only_data_is_read(name: str, message: str, tmp_path: Path) -> None:
    folder, ran = tmp_path / "data", tmp_path / "it ran"
    folder.mkdir()
    (folder / name).write_text(f"open({str(ran)!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{message}.*Use (complete )?files of these kinds: Parquet, CSV, TSV, JSON"):
        as_of_the_hub(folder)
    assert not ran.exists()
