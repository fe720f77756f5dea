"""The colours of the heads whose lines are drawn stay apart for every kind of colour vision, and from the page."""

import re
from itertools import combinations

import numpy as np
import pytest

from regard.explorer.bundle import frontend_file

# Machado, Oliveira, Fernandes 2009, severity 1: linear RGB as it is seen.
VISIONS = {
    "usual": np.eye(3),
    "without red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "without green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "without blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.95047, 1, 1.08883])
LEAST_DISTANCE = 15  # of CIELAB; 2 is just noticeable between large fields, and lines are thin


def linear(color):
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    x = np.clip(rgb, 0, 1) @ XYZ.T / WHITE
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def colors(theme):
    light, dark = re.findall(
        r"\.regard(?:\[data-theme=\"dark\"\])? \{(.*?)\}", frontend_file("styles/lines.css"), re.DOTALL
    )[:2]
    found = re.findall(r"--line-\d: (#\w{6});", {"light": light, "dark": dark}[theme])
    assert len(found) == 8
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_heads_are_told_apart(theme, vision):
    seen = [lab(linear(color) @ np.array(VISIONS[vision]).T) for color in colors(theme)]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > LEAST_DISTANCE


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#15171d")])
def test_lines_stand_out_from_the_page(theme, ground):
    luminances = [linear(color) @ XYZ[1] + 0.05 for color in (ground, *colors(theme))]
    contrasts = [max(luminances[0], each) / min(luminances[0], each) for each in luminances[1:]]
    assert min(contrasts) >= 3
