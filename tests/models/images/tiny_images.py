"""Tiny models of pictures with their preprocessing, and pictures for them."""

import json
import shutil

import numpy as np

import golden


def write(folder, case="vit/plain", processor=None, config=None):
    """Write a stored tiny model to `folder`, with changes to its configuration and its preprocessing."""
    shutil.copytree(golden.FOLDER / case, folder)
    for name, changes in (("config.json", config), ("preprocessor_config.json", processor)):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | (changes or {})))
    return folder


def picture(height=20, width=31, seed=0):
    """Return a picture as an array, smooth with some noise."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 5), np.cos(y / 3), np.sin((x + y) / 7)], axis=-1)
    noise = np.random.default_rng(seed).normal(0, 20, waves.shape)
    return np.clip(127 + 100 * waves + noise, 0, 255).astype(np.uint8)
