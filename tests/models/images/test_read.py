"""Pictures from files, Pillow images and arrays: what is read, and what is refused in a sentence."""

import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image
from tiny_images import picture

from regard import RegardError
from regard.models.images import read
from regard.models.images.read import read_picture

PICTURE = picture()


def rgb(x):
    return np.asarray(read_picture(x))


def save(path, image=None, **options):
    (Image.fromarray(PICTURE) if image is None else image).save(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "ppm", "webp"])
def test_a_file_has_its_pixels(tmp_path, suffix):
    path = save(tmp_path / f"x.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    np.testing.assert_array_equal(rgb(path), PICTURE)
    np.testing.assert_array_equal(rgb(str(path)), PICTURE)
    np.testing.assert_array_equal(rgb(PICTURE[::-1]), PICTURE[::-1])


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "YCbCr", "LAB", "HSV"])
def test_other_modes_become_rgb(mode):
    image = Image.fromarray(PICTURE).convert("RGB" if mode in ("P", "LAB") else mode)
    image = image.convert(mode) if mode == "P" else image
    np.testing.assert_array_equal(rgb(image), np.asarray(image.convert("RGB")))


def test_a_transparent_image_is_over_white_and_a_transparent_file_without_its_transparency(tmp_path):
    """As transformers does: its reader of files drops what its processors put over white."""
    image = Image.new("RGBA", (4, 3), (200, 100, 0, 0))
    assert rgb(image)[0, 0].tolist() == [255, 255, 255]
    assert rgb(save(tmp_path / "x.png", image))[0, 0].tolist() == [200, 100, 0]
    gray = Image.new("LA", (4, 3), (100, 0))
    assert rgb(gray)[0, 0].tolist() == [255, 255, 255]
    palette = Image.new("P", (4, 3), 0)
    palette.putpalette([10, 20, 30])
    palette.info["transparency"] = 0
    assert rgb(palette)[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_grey_of_sixteen_bits_keeps_its_range(tmp_path, suffix):
    """Pillow alone would make white of everything from 255 of 65,535 on."""
    grey = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    path = save(tmp_path / f"x{suffix}", Image.fromarray(grey))
    wanted = np.arange(256).reshape(16, 16)
    for x in (path, Image.open(path)):
        for channel in rgb(x).transpose(2, 0, 1):
            np.testing.assert_array_equal(channel, wanted)
    exif = Image.Exif()
    exif[274] = 6  # turned by a quarter
    turned = save(tmp_path / f"turned{suffix}", Image.fromarray(grey), exif=exif)
    np.testing.assert_array_equal(rgb(turned)[..., 0], np.rot90(wanted, -1))


def tiff(path, bits, data, *, width=4, sample_format=1, white=1):
    """Write a TIFF of one row of grey by hand, as scanners and microscopes do; `white` 0: zero is white."""
    sizes = {256: width, 257: 1, 258: bits, 259: 1, 262: white, 273: 134, 277: 1, 278: 1, 279: len(data)}
    entries = b"".join(
        struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in [*sizes.items(), (339, sample_format)]
    )
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, 10) + entries + struct.pack("<I", 0) + data)
    return path


GREY = {
    8: bytes([0, 64, 128, 255]),
    12: bytes([0x00, 0x04, 0x04, 0x80, 0x8F, 0xFF]),
    16: np.array([0, 64 * 257, 128 * 257, 65535], "<u2").tobytes(),
}


@pytest.mark.parametrize(("bits", "white"), [(8, 1), (8, 0), (12, 1), (16, 1), (16, 0)])
def test_grey_of_tiff_is_from_black_to_white(tmp_path, bits, white):
    path = tiff(tmp_path / "x.tif", bits, GREY[bits], white=white)
    wanted = np.array([0, 64, 128, 255])
    for x in (path, Image.open(path)):
        np.testing.assert_array_equal(rgb(x)[0, :, 1], wanted if white else 255 - wanted)


@pytest.mark.parametrize("largest", [1000, 65535])
def test_grey_of_pgm_has_the_white_of_its_header(tmp_path, largest):
    values = np.array([0, largest // 4, largest // 2, largest])
    (tmp_path / "x.pgm").write_bytes(b"P5 4 1 %d\n" % largest + values.astype(">u2").tobytes())
    (tmp_path / "y.pgm").write_text(f"P2 4 1 {largest} {' '.join(map(str, values))}")
    for name in ("x.pgm", "y.pgm"):
        np.testing.assert_array_equal(rgb(tmp_path / name)[0, :, 0], np.round(values * 255 / largest))


def test_modes_multiplied_by_opacity_are_over_white():
    pixels = np.full((2, 3, 4), (200, 100, 0, 128), np.uint8)
    image = Image.fromarray(pixels)
    np.testing.assert_allclose(rgb(image.convert("RGBa")), rgb(image).astype(int), atol=2)
    grey = image.convert("LA")
    np.testing.assert_allclose(rgb(grey.convert("La")), rgb(grey).astype(int), atol=2)


def test_pixels_of_no_known_white_are_refused(tmp_path):
    numbers = np.arange(16).reshape(4, 4)
    paths = [save(tmp_path / f"{x.__name__}.tif", Image.fromarray(numbers.astype(x))) for x in (np.float32, np.int32)]
    paths += [tiff(tmp_path / f"{bits}.tif", bits, bytes(4 * bits // 8), sample_format=2) for bits in (8, 16)]  # signed
    for x in (*paths, *map(Image.open, paths)):
        with pytest.raises(RegardError, match="in which no value is white: scale them to 0 to 255"):
            rgb(x)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_file_is_turned_as_its_exif_data_say(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(PICTURE)
    path = save(tmp_path / "x.png", image, exif=exif)
    turned = {1: PICTURE, 2: PICTURE[:, ::-1], 3: PICTURE[::-1, ::-1], 4: PICTURE[::-1]}
    turned |= {orient + 4: np.swapaxes(PICTURE, 0, 1)[y, x] for orient, y, x in (
        (1, slice(None), slice(None)), (2, slice(None), slice(None, None, -1)),
        (3, slice(None, None, -1), slice(None, None, -1)), (4, slice(None, None, -1), slice(None)))}  # fmt: skip
    np.testing.assert_array_equal(rgb(path), turned[orientation])


def test_an_animation_is_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (5, 4), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(rgb(tmp_path / "x.gif"), np.broadcast_to(np.uint8([255, 0, 0]), (4, 5, 3)))


def png(width, height, data=b""):
    """Return a PNG that claims a size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"x.png is not a picture: give one in PNG, JPEG, GIF, WEBP, BMP, TIFF or PPM"),
        (b"hello", "x.png is not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "x.png is not a picture"),
        (png(100_000, 100_000), r"x.png has more than 67,108,864 pixels; give a smaller copy"),
        (png(12_000, 12_000), r"x.png has 12,000 × 12,000 pixels, more than 67,108,864 in all; give a smaller copy"),
        (png(20, 20, b"\0" * 30), "x.png is a damaged picture, .*; fetch it again"),
        (png(0, 3), "x.png is (a damaged|not a) picture"),
    ],
    ids=["empty", "text", "postscript", "bomb", "large", "short", "no width"],
)
def test_what_is_no_picture_is_refused_in_a_sentence(tmp_path, content, message):
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(RegardError, match=message):
        read_picture(path)


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "tiff", "webp", "bmp"])
def test_a_cut_or_damaged_file_is_read_or_refused(tmp_path, kind, rng):
    stream = io.BytesIO()
    Image.fromarray(PICTURE).save(stream, kind)
    whole = stream.getvalue()
    path = tmp_path / "x"
    for cut in np.linspace(0, len(whole) - 1, 40).astype(int):
        damaged = bytearray(whole)
        damaged[cut] ^= int(rng.integers(1, 256))
        for content in (whole[:cut], bytes(damaged)):
            path.write_bytes(content)
            try:
                read_picture(path)
            except RegardError as error:
                assert "picture" in str(error) or "pixels" in str(error)  # noqa: PT017, some of them are whole


NO_ARRAY = r"has whole numbers from 0 to 255 \(uint8\) and the axes Y X 3, got "


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none.png", r"there is no picture .*none\.png"),
        (".", r"cannot read .*: Is a directory"),
        (3, r"a picture is a file, a Pillow image, or an array .*, got int"),
        (np.zeros((3, 4)), NO_ARRAY),
        (np.zeros((4, 5, 3)), NO_ARRAY),
        (np.zeros((4, 5), np.uint8), NO_ARRAY),
        (np.zeros((0, 5, 3), np.uint8), NO_ARRAY),
    ],
    ids=str,
)
def test_what_is_no_file_no_image_and_no_picture_is_refused(tmp_path, given, message):
    with pytest.raises(RegardError, match=message):
        read_picture(tmp_path / given if isinstance(given, str) else given)


def test_a_pillow_image_that_is_too_large_or_damaged_is_refused(tmp_path):
    large = Image.new("1", (1, 1))
    large._size = (1_000_000, 1000)  # without the memory that it would take
    with pytest.raises(RegardError, match="the picture has 1,000,000 × 1,000 pixels"):
        read_picture(large)
    path = tmp_path / "x.png"
    path.write_bytes(png(20, 20, b"\0" * 30))
    with pytest.raises(RegardError, match="the picture is a damaged picture"), Image.open(path) as image:
        read_picture(image)


def test_without_pillow_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(RegardError, match=r"a picture needs pillow: pip install 'regard\[images\]'"):
        read.pillow()


def test_pillow_is_imported_when_a_picture_is_read():
    code = (
        "import sys, numpy, regard, golden\n"
        "model = regard.load(golden.FOLDER / 'vit/plain')\n"
        "model({'pixel_values': numpy.zeros((1, 3, 12, 12))})\n"
        "assert 'PIL' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
