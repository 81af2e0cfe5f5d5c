import numpy as np
import torch

from scalebook.training.callbacks.job_files import grid


def test_a_grid_shows_each_image_in_its_place() -> None:
    images = torch.zeros(3, 1, 2, 2)
    images[1] = 1.0
    picture = grid(images)
    scale = picture.width // 7  # 2 images of 2 pixels, 3 borders
    pixels = np.asarray(picture)[scale // 2 :: scale, scale // 2 :: scale]
    assert pixels.shape == (7, 7)
    assert pixels[1:3, 1:3].max() == 0
    assert pixels[1:3, 4:6].min() == 255
    assert pixels[4:6, 1:3].max() == 0
    assert set(pixels[0]) == {128}
    assert max(picture.size) >= 320


def test_colours_and_out_of_range_values() -> None:
    image = torch.tensor([2.0, -1.0, 0.5]).reshape(1, 3, 1, 1)
    picture = grid(image)
    assert picture.mode == "RGB"
    assert picture.getpixel((picture.width // 2, picture.height // 2)) == (255, 0, 128)
