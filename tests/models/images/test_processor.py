"""The preprocessing of pictures: worked examples, what a file may say, and what is refused."""

import json

import pytest
from PIL import Image

from regard import RegardError
from regard.models.checkpoint.config import ConfigReader
from regard.models.images.processor import ImageProcessor, read_processor


def read(kind="ViT", **fields):
    return ImageProcessor.read(ConfigReader(fields, "preprocessor_config.json"), kind)


def test_the_defaults_are_those_of_the_family():
    vit, clip = read("ViT"), read("CLIP")
    assert (vit.size, vit.resample, vit.crop_size, vit.mean) == ((224, 224), 2, None, (0.5, 0.5, 0.5))
    assert (clip.size, clip.resample, clip.crop_size, clip.output_size) == (224, 3, (224, 224), (224, 224))
    assert read("ViT", image_processor_type="CLIPImageProcessorFast") == clip
    assert read("CLIP", feature_extractor_type="ViTFeatureExtractor") == vit


def test_the_forms_of_a_size():
    assert read("ViT", size=30).size == read("ViT", size={"height": 30, "width": 30}).size == (30, 30)
    assert read("CLIP", size=30).size == read("ViT", size={"shortest_edge": 30}).size == 30
    assert read("CLIP", size=30, default_to_square=True).size == (30, 30)
    assert read("CLIP", crop_size=30).crop_size == (30, 30)
    assert read("CLIP", do_resize=False).size is None
    assert read("CLIP", do_center_crop=False).output_size is None


def test_the_file_may_be_part_of_another_and_null_is_no_value(tmp_path):
    assert read_processor(tmp_path, "ViT") is None
    fields = {"size": {"height": 4, "width": 5}, "crop_size": None, "do_center_crop": None, "device": None}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": fields}))
    assert read_processor(tmp_path, "ViT").size == (4, 5)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 6}))
    assert read_processor(tmp_path, "ViT").size == (6, 6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": {"longest_edge": 3}}, r"size must be a whole number, \{height, width\} or \{shortest_edge\}"),
        ({"size": {"height": 0, "width": 3}}, "size must be"),
        ({"size": "224"}, "size must be"),
        ({"size": True}, "size must be"),
        ({"size": [224, 224]}, "size must be"),
        ({"crop_size": {"shortest_edge": 3}}, "crop_size must be"),
        ({"size": {"shortest_edge": 10**400}}, "size must be"),
        ({"resample": 6}, "resample must be a whole number from 0 to 5, got 6"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std has a 0"),
        ({"image_mean": [0.5]}, "image_mean must be three numbers"),
        ({"image_mean": ["a", "b", "c"]}, "image_mean must be three numbers"),
        ({"image_mean": [float("nan")] * 3}, "image_mean must be three numbers"),
        ({"image_mean": [10**400] * 3}, "image_mean must be three numbers"),
        ({"rescale_factor": 0}, "rescale_factor must be a number above 0"),
        ({"do_resize": "yes"}, "do_resize must be true or false"),
        ({"do_pad": True}, "do_pad=True is not supported"),
        (
            {"image_processor_type": "DonutImageProcessor"},
            "image_processor_type='DonutImageProcessor' is not supported",
        ),
        ({"patch_mosaic": 3}, "unknown field patch_mosaic=3"),
    ],
    ids=str,
)
def test_what_a_file_cannot_say_is_refused(fields, message):
    with pytest.raises(RegardError, match=message):
        read(**fields)


def test_a_line_of_pixels_is_not_blown_up():
    with pytest.raises(RegardError, match="a picture of 1 × 30000 pixels is too narrow to be resized"):
        read("CLIP").crop(Image.new("RGB", (1, 30_000)))
