"""Pictures beside transformers: its preprocessing bit for bit, classes, and maps over a picture, live."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_images import picture

import make_golden
import regard
from regard import Trace
from regard.models.images.processor import read_processor
from regard.models.images.read import read_picture
from regard.text import SubwordTokenizer

PICTURES = [(20, 31), (31, 20), (224, 224), (7, 9), (300, 225), (100, 1)]


def pil(transformers, kind):
    """Return the processor of transformers on Pillow and NumPy."""
    return getattr(transformers, f"{kind}ImageProcessorPil")


OPTIONS = [
    ("ViT", {}),
    ("ViT", {"size": {"height": 30, "width": 47}, "resample": 3}),
    ("ViT", {"size": {"shortest_edge": 21}, "do_center_crop": True, "crop_size": {"height": 20, "width": 25}}),
    ("ViT", {"size": {"height": 16, "width": 16}, "resample": 0, "do_normalize": False}),
    ("ViT", {"size": {"height": 16, "width": 16}, "resample": 1, "image_mean": [0.1, 0.2, 0.3]}),
    ("ViT", {"do_resize": False, "do_rescale": False}),
    ("CLIP", {}),
    ("CLIP", {"size": {"shortest_edge": 33}, "crop_size": {"height": 17, "width": 40}, "resample": 2}),
    ("CLIP", {"size": {"height": 40, "width": 30}, "crop_size": {"height": 35, "width": 27}, "resample": 4}),
    ("CLIP", {"do_resize": False, "crop_size": {"height": 33, "width": 8}, "resample": 5}),
    ("CLIP", {"do_center_crop": False, "rescale_factor": 0.01}),
    ("Bit", {"size": {"shortest_edge": 256}, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
]


@pytest.mark.parametrize("shape", PICTURES, ids=str)
@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=str)
def test_the_numbers_of_a_picture_are_those_of_transformers(transformers, tmp_path, kind, options, shape):
    processor = pil(transformers, kind)(**options)
    processor.save_pretrained(tmp_path)
    array = picture(*shape)
    expected = processor(Image.fromarray(array), return_tensors="np")["pixel_values"]
    found = read_processor(tmp_path, kind)
    seen = found.crop(read_picture(array))[None]
    np.testing.assert_array_equal(found.normalize(seen), expected)
    assert found.normalize(seen).dtype == expected.dtype == np.float32


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16"])
@pytest.mark.parametrize("kind", ["ViT", "CLIP"])
def test_files_and_images_of_every_mode_are_read_as_transformers_does(transformers, tmp_path, kind, mode):
    array = picture()
    image = Image.fromarray(array)
    if mode == "I;16":
        image = Image.fromarray(array[..., 0].astype(np.uint16) * 200)
    elif mode == "RGBA":
        image.putalpha(Image.fromarray(array[..., 1]))
    else:
        image = image.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / ("x.jpeg" if mode == "CMYK" else "x.png")
    image.save(path, exif=exif)
    processor = pil(transformers, kind)()
    processor.save_pretrained(tmp_path)
    found = read_processor(tmp_path, kind)
    given = [(str(path), str(path))]
    if mode == "I;16":  # which Pillow, and so transformers, cuts off at 255
        image = Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))
        image.save(tmp_path / "eight.png", exif=exif)
        given = [(str(path), str(tmp_path / "eight.png"))]
    if kind == "CLIP":  # that of ViT takes images in RGB alone
        given.append((image, image))
    for source, theirs in given:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = processor.fetch_images(theirs) if isinstance(theirs, str) else theirs
        expected = processor(loaded, return_tensors="np")["pixel_values"]
        np.testing.assert_array_equal(found.normalize(found.crop(read_picture(source))[None]), expected)


def test_a_whole_processor_of_clip_is_read(transformers, tmp_path):
    """Whose file, processor_config.json, has that of pictures as a part."""
    make_golden.write("clip", "plain", tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    images = pil(transformers, "CLIP")(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12})
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), pad_token="<pad>")
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path)
    assert not (tmp_path / "preprocessor_config.json").exists()
    ours = regard.load(tmp_path)
    theirs = transformers.CLIPModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    array = picture()
    with torch.no_grad():
        pixels = images(Image.fromarray(array), return_tensors="pt")
        expected = theirs(input_ids=torch.tensor([[5, 9, 7], [8, 11, 7]]), **pixels)
    found = ours.similarity(array, ["w5 w9 w7", "w8 w11 w7"])
    np.testing.assert_allclose(found, expected.logits_per_image.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize(("family", "labels"), [("vit", None), ("vit", 2), ("vit", 3), ("dinov2", 3)])
def test_classes_of_a_picture(transformers, tmp_path, family, labels, dtype, tolerance):
    """From a picture to logits, with a map over it; and the names of the classes."""
    kind = make_golden.CASES[family]
    sizes = kind.sizes | {"attn_implementation": "eager"} | ({"image_size": 16} if family == "dinov2" else {})
    names = None if labels is None else {i: f"name {i}" for i in range(labels)}
    config = getattr(transformers, kind.config)(**sizes, **({} if names is None else {"id2label": names}))
    head = getattr(transformers, kind.model.replace("Model", "ForImageClassification"))
    model = make_golden.drawn(head(config).eval(), 1)
    model.save_pretrained(tmp_path)
    processor = pil(transformers, "ViT")(size={"height": 12, "width": 12})
    processor.save_pretrained(tmp_path)
    array, trace = picture(), Trace()
    ours = regard.load(tmp_path, dtype=np.dtype(dtype))
    found = ours(array, trace=trace)
    pixels = processor(Image.fromarray(array), return_tensors="pt")["pixel_values"]
    np.testing.assert_array_equal(trace["pixel_values"], pixels.numpy())
    with make_golden.doubles_throughout(), torch.no_grad():
        expected = model.double()(pixels.double(), output_attentions=True)
    np.testing.assert_allclose(found.logits, expected.logits.numpy(), rtol=0, atol=10 * tolerance)
    for i, weights in enumerate(expected.attentions):
        np.testing.assert_allclose(trace[f"blocks.{i}.attn.weights"], weights.numpy(), rtol=0, atol=tolerance)
    assert found.labels == tuple(model.config.id2label[i] for i in range(len(found.labels)))
    assert ours.predictions(array)[0].id == expected.logits.argmax().item()


def test_the_tokenizer_of_clip(transformers, tmp_path):
    """Whose words end with ``</w>``."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    merges = [("c", "a"), ("ca", "t</w>"), ("d", "o"), ("do", "g</w>"), ("p", "h"), ("ph", "o"), ("t", "o</w>")]
    pieces = [*letters, *(f"{x}</w>" for x in letters), *map("".join, merges), "<|startoftext|>", "<|endoftext|>"]
    theirs = transformers.CLIPTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges)
    theirs.save_pretrained(tmp_path)
    ours = SubwordTokenizer.from_folder(tmp_path)
    assert ours.pad_id == theirs.pad_token_id
    for text in ("a photo of a Cat", "two   dogs, 3 cats!", "Don't  Ünïcode 日本 x", "", "it's 100%"):
        assert list(ours(text).ids) == theirs(text)["input_ids"], text
    assert [word for word, _ in ours("a photo of a Cat").word_groups()][1:-1] == ["a", "photo", "of", "a", "Cat"]
