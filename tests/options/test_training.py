import json
import re
from dataclasses import asdict, replace

import pytest
from conftest import naming

from captcha_ocr.charset import Charset
from captcha_ocr.data.prepare import derive_size
from captcha_ocr.errors import UsageError
from captcha_ocr.input_size import GENERATED, ImageKind, InputSize
from captcha_ocr.options.declaration import words
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import (
    ANY_DESIGN,
    PRESETS,
    DrawOptions,
    TrainConfig,
    derive_epochs,
    preset_for,
    preset_named,
)

MODEL = ModelConfig(
    Charset("abé", "lower"), Lengths(4, 6), InputSize(24, 56, 3), NetworkConfig(width=8, stem="3x3")
)


SEEDS = [-1, 2**32, 0.5]
IMPOSSIBLE = {
    Lengths(4, 4): {"shortest": [0, 5, "4"], "longest": [65]},
    MODEL.size: {"height": [7, 16.0], "width": [1025], "channels": [2]},
    NetworkConfig(): {"width": [0, True], "stem": ["5x5"], "pool": ["none"], "normalise": [1]},
    PrepareConfig(): {
        "preset": ["nonesuch"],
        "channels": [0, 4],
        "seed": SEEDS,
        "split": [(80, 20), (80, 10, 5), (90, 10, 0), (110, -20, 10)],
        "size": [(0, 16), (4, 16)],
    },
    TrainConfig(): {
        "epochs": [0],
        "patience": [0],
        "batch_size": [1],
        "learning_rate": [0.0, float("nan")],
    }
    | {
        "schedule": ["linear"],
        "optimizer": ["sgd"],
        "loss": ["mse"],
        "precision": ["fp8"],
        "seed": SEEDS,
    },
    DrawingOptions(): {
        "start": [-1],
        "height": [15],
        "font_sizes": [(42, 3)],
    }
    | {"seed": SEEDS},
}


@pytest.mark.parametrize("config", IMPOSSIBLE, ids=lambda config: type(config).__name__)
def test_an_impossible_value_is_refused(config):
    for field, values in IMPOSSIBLE[config].items():
        for value in values:
            with pytest.raises(UsageError):
                replace(config, **{field: value})


def test_lengths_are_one_number_or_a_range():
    assert [str(Lengths(4, 4)), str(Lengths(4, 6))] == ["4", "4-6"]
    assert [Lengths.parse(text) for text in ("4", "4-6", "04")] == [
        Lengths(4, 4),
        Lengths(4, 6),
        Lengths(4, 4),
    ]
    assert [length in Lengths(4, 6) for length in (3, 4, 6, 7)] == [False, True, True, False]


@pytest.mark.parametrize("text", ["", "-4", "4-", "four", "4-6-8", "6-4", "0", "4 - 6", "1-65"])
def test_a_text_that_is_no_length_is_refused(text):
    with pytest.raises(UsageError, match=re.escape(text or "''")):
        Lengths.parse(text)


def test_a_place_can_be_empty_if_lengths_vary_or_ctc_reads_columns():
    for pool, shortest, nothing in (("global", 4, []), ("global", 3, [""]), ("columns", 4, [""])):
        model = replace(
            MODEL, lengths=Lengths(shortest, 4), network=replace(MODEL.network, pool=pool)
        )
        assert model.class_names == ["a", "b", "é", *nothing]


def test_a_model_configuration_comes_back_from_json():
    assert ModelConfig.from_dict(json.loads(json.dumps(MODEL.to_dict()))) == MODEL


MALFORMED = {
    "lengths": [4, {"shortest": 0, "longest": 4}, {"shortest": 4}],
    "size": [None, {"height": 24}],
    "network": [{"wings": 2}, {"stem": ["3x3"]}],
    "charset": [
        "ab",
        {"characters": 5, "fold": None},
        {"characters": "ab", "fold": "title"},
        {"characters": "ab"},
    ],
}


@pytest.mark.parametrize("key", MALFORMED)
def test_a_model_configuration_without_a_whole_part_is_refused(key):
    document = MODEL.to_dict()
    for value in MALFORMED[key]:
        with pytest.raises(UsageError):
            ModelConfig.from_dict({**document, key: value})
    del document[key]
    with pytest.raises(UsageError, match=key):
        ModelConfig.from_dict(document)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_training_of_every_preset_knows_its_name_and_comes_back_from_json(preset):
    training = preset_named(preset).training
    assert training.preset == preset
    assert TrainConfig.from_dict(json.loads(json.dumps(training.to_dict()))) == training


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match="momentum"):
        TrainConfig.from_dict({"momentum": 0.9})
    with pytest.raises(UsageError, match="'nonesuch'") as refusal:
        preset_named("nonesuch")
    assert all(name in str(refusal.value) for name in PRESETS)


def test_an_option_without_a_value_keeps_that_of_the_preset():
    assert TrainConfig(batch_size=7).with_options(batch_size=None, epochs=3) == TrainConfig(
        batch_size=7, epochs=3
    )


def test_options_and_the_preset_win_over_the_size_of_the_images():
    options = [
        {"preset": "seed"},
        {"preset": "seed", "channels": 1},
        {"size": (100, 40)},
        {"channels": 3},
    ]
    sizes = [str(PrepareConfig(**some).input_size(GENERATED)) for some in options]
    assert sizes == ["56x24, colour", "56x24, grey", "100x40, grey", "160x60, colour"]


@pytest.mark.parametrize(
    ("width", "height", "longest", "size"),
    [
        (160, 60, 3, (160, 60)),
        (240, 60, 6, (240, 60)),
        (200, 50, 5, (200, 50)),  # close enough to the budget
        (240, 80, 4, (170, 57)),  # made smaller
        (72, 24, 4, (170, 57)),  # made larger
        (100, 100, 10, (160, 155)),  # at least two columns a character
        (1000, 10, 4, (1000, 10)),
        (1, 8, 64, (1024, 1024)),
        (4000, 8, 4, (1024, 8)),
    ],
)
def test_the_input_keeps_the_proportions_of_the_images_and_a_budget_of_pixels(
    width, height, longest, size
):
    for channels in (1, 3):
        found = PrepareConfig().input_size(derive_size(ImageKind(height, width, channels), longest))
        assert (found.width, found.height, found.channels) == (*size, channels)


def test_the_number_of_epochs_follows_from_the_number_of_images():
    preset = PRESETS["default"]
    epochs = [
        derive_epochs(TrainConfig(), images) for images in (10, preset.images_seen // 10, 10**9)
    ]
    assert epochs == [preset.max_epochs, 10, 1]
    assert derive_epochs(TrainConfig(preset="few"), 5000) == 30
    assert derive_epochs(TrainConfig(epochs=7), 10**9) == 7
    assert derive_epochs(PRESETS["seed"].training, 24_000) is None  # early stopping ends the run
    with pytest.raises(UsageError, match="`epochs`"):
        derive_epochs(TrainConfig(preset="seed", schedule="cosine"), 1000)


def test_the_preset_follows_from_the_number_of_images():
    assert [preset_for(images) for images in (2, 19_999, 20_000, 10**6)] == [
        "few",
        "few",
        "default",
        "default",
    ]


def test_few_images_of_the_size_of_the_model_in_the_package_start_from_it():
    size = ANY_DESIGN.fixed(200, 50)
    assert [preset_for(images, size) for images in (2, 999, 1000)] == [
        "finetune",
        "finetune",
        "few",
    ]
    others = InputSize(64, 256, 1), InputSize(60, 160, 3), InputSize(64, 250, 3)
    assert [preset_for(2, other) for other in others] == ["few"] * 3
    training = preset_named("finetune").training
    assert training.for_fine_tuning(on_drawings=False) == training


ALL = DrawOptions(("captcha",), "2-3", "digits", True, ("a.ttf", "b.ttf"), (48, 16), 3, 40, 2, 1)


def test_options_survive_json_and_are_given_as_they_were():
    assert DrawOptions.from_dict(json.loads(json.dumps(asdict(ALL)))) == ALL
    assert words(DrawOptions().given()) == ["--draw", "captcha"]
    assert " ".join(words(ALL.given())) == (
        "--draw captcha --length 2-3 --charset digits --case-sensitive --fonts a.ttf "
        "--fonts b.ttf --size 48x16 --channels 3 --images 40 --repeat 2 --workers 1"
    )


@pytest.mark.parametrize(
    ("options", "name"), [({"images": 1}, "images"), ({"repeat": 0}, "repeat")]
)
def test_what_cannot_be_drawn_is_refused_by_the_name_of_the_option(options, name):
    with pytest.raises(UsageError, match=naming(f"`{name}`")):
        DrawOptions(**options)


@pytest.mark.parametrize(("epochs", "images"), [(1, 40), (2, 40), (3, 80)])
def test_every_few_epochs_show_other_images(epochs, images):
    assert ALL.different(epochs) == images
