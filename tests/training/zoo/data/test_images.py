from scalebook.training.zoo.data import Digits, ImageSpec, PhotoPatches


def test_each_data_set_tells_its_geometry_before_it_reads_a_file() -> None:
    assert Digits().images == ImageSpec(channels=1, height=8, width=8, levels=17, classes=10)
    assert PhotoPatches().images == ImageSpec(channels=1, height=16, width=16, levels=16, classes=2)
    assert Digits(normalize=True).images.normalized
