import dataclasses
import json
import re

import pytest

from captcha_ocr.charset import Charset
from captcha_ocr.config import (
    GENERATED,
    PRESETS,
    GeneratorConfig,
    ImageKind,
    InputSize,
    Lengths,
    ModelConfig,
    NetworkConfig,
    PrepareConfig,
    TrainConfig,
    derive_epochs,
    differences,
    preset_for,
    preset_named,
)
from captcha_ocr.errors import UsageError

MODEL = ModelConfig(Charset("abé", "lower"), Lengths(4, 6), InputSize(24, 56, 3), NetworkConfig(width=8, stem="3x3"))


def through_json(document):
    return json.loads(json.dumps(document))


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (InputSize, {"height": 7, "width": 48, "channels": 1}),
        (InputSize, {"height": 16, "width": 1025, "channels": 1}),
        (InputSize, {"height": 16.0, "width": 48, "channels": 1}),
        (InputSize, {"height": 16, "width": 48, "channels": 2}),
        (NetworkConfig, {"width": 0}),
        (NetworkConfig, {"width": True}),
        (NetworkConfig, {"stem": "5x5"}),
        (NetworkConfig, {"pool": "none"}),
        (NetworkConfig, {"normalise": 1}),
        (PrepareConfig, {"preset": "nonesuch"}),
        (PrepareConfig, {"width": 48}),
        (PrepareConfig, {"height": 16}),
        (PrepareConfig, {"width": 0, "height": 0}),
        (PrepareConfig, {"width": 4, "height": 16}),
        (PrepareConfig, {"channels": 0}),
        (PrepareConfig, {"channels": 4}),
        (PrepareConfig, {"split": (80, 20)}),
        (PrepareConfig, {"split": (80, 10, 5)}),
        (PrepareConfig, {"split": (90, 10, 0)}),
        (PrepareConfig, {"split": (110, -20, 10)}),
        (TrainConfig, {"epochs": 0}),
        (TrainConfig, {"patience": 0}),
        (TrainConfig, {"batch_size": 1}),
        (TrainConfig, {"learning_rate": 0.0}),
        (TrainConfig, {"learning_rate": float("nan")}),
        (TrainConfig, {"schedule": "linear"}),
        (TrainConfig, {"optimizer": "sgd"}),
        (TrainConfig, {"loss": "mse"}),
        (TrainConfig, {"precision": "fp8"}),
        (GeneratorConfig, {"start": -1}),
        (Lengths, {"shortest": 0, "longest": 4}),
        (Lengths, {"shortest": 5, "longest": 4}),
        (Lengths, {"shortest": 4, "longest": 65}),
        (Lengths, {"shortest": "4", "longest": 4}),
        (GeneratorConfig, {"height": 15}),
        (GeneratorConfig, {"font_sizes": ()}),
        (GeneratorConfig, {"font_sizes": (42, 3)}),
        (GeneratorConfig, {"warp": "none"}),
        (GeneratorConfig, {"charset": "aa"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_value_that_cannot_be_is_refused(build, options):
    with pytest.raises(UsageError):
        build(**options)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MODEL.lengths = Lengths(5, 5)


def test_lengths_read_as_one_number_or_as_the_first_and_the_last():
    assert str(Lengths(4, 4)) == "4"
    assert str(Lengths(4, 6)) == "4-6"
    assert [Lengths.parse(text) for text in ("4", "4-6", "04")] == [Lengths(4, 4), Lengths(4, 6), Lengths(4, 4)]
    assert [length in Lengths(4, 6) for length in (3, 4, 6, 7)] == [False, True, True, False]


@pytest.mark.parametrize("text", ["", "-4", "4-", "four", "4-6-8", "6-4", "0", "4 - 6", "1-65"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(UsageError, match=re.escape(text or "''")):
        Lengths.parse(text)


@pytest.mark.parametrize(
    ("pool", "shortest", "nothing"), [("global", 4, []), ("global", 3, [""]), ("columns", 4, [""])]
)
def test_a_place_can_hold_nothing_where_lengths_vary_and_a_column_always(pool, shortest, nothing):
    network = dataclasses.replace(MODEL.network, pool=pool)
    model = dataclasses.replace(MODEL, lengths=Lengths(shortest, 4), network=network)
    assert model.class_names == ["a", "b", "é", *nothing]


def test_a_size_reads_as_width_by_height():
    assert "160x60" in str(InputSize(height=60, width=160, channels=1))


def test_a_model_configuration_comes_back_from_json():
    assert ModelConfig.from_dict(through_json(MODEL.to_dict())) == MODEL


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": 4},
        {"lengths": {"shortest": 0, "longest": 4}},
        {"lengths": {"shortest": 4}},
        {"size": None},
        {"size": {"height": 24}},
        {"network": {"wings": 2}},
        {"network": {"stem": ["3x3"]}},
        {"charset": "ab"},
        {"charset": {"characters": 5, "fold": None}},
        {"charset": {"characters": "ab", "fold": "title"}},
        {"charset": {"characters": "ab"}},
        {"charset": {"characters": "aa", "fold": None}},
    ],
)
def test_a_malformed_model_configuration_is_refused(change):
    with pytest.raises(UsageError):
        ModelConfig.from_dict({**MODEL.to_dict(), **change})


@pytest.mark.parametrize("key", ["charset", "lengths", "size", "network"])
def test_a_model_configuration_that_lacks_a_part_is_refused(key):
    document = MODEL.to_dict()
    del document[key]
    with pytest.raises(UsageError, match=key):
        ModelConfig.from_dict(document)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_training_of_every_preset_comes_back_from_json(preset):
    training = PRESETS[preset].training
    assert TrainConfig.from_dict(through_json(training.to_dict())) == training


def test_a_malformed_training_configuration_is_refused():
    with pytest.raises(UsageError, match="momentum"):
        TrainConfig.from_dict({"momentum": 0.9})


def test_an_option_that_is_not_given_leaves_the_value_of_the_preset():
    assert TrainConfig(batch_size=7).with_options(batch_size=None, epochs=3) == TrainConfig(batch_size=7, epochs=3)


def test_an_unknown_preset_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="'nonesuch'") as refusal:
        preset_named("nonesuch")
    assert all(name in str(refusal.value) for name in PRESETS)


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_training_of_a_preset_knows_its_name(name):
    assert preset_named(name).training.preset == name


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (PrepareConfig(), InputSize(60, 160, 1)),
        (PrepareConfig(preset="seed"), InputSize(24, 56, 3)),
        (PrepareConfig(width=100, height=40), InputSize(40, 100, 1)),
        (PrepareConfig(channels=3), InputSize(60, 160, 3)),
        (PrepareConfig(preset="seed", channels=1), InputSize(24, 56, 1)),
    ],
)
def test_options_and_a_preset_come_before_the_size_of_the_images(config, size):
    assert config.input_size(4, GENERATED) == size


@pytest.mark.parametrize(
    ("images", "longest", "size"),
    [
        (ImageKind(60, 160, 1), 3, InputSize(60, 160, 1)),
        (ImageKind(60, 160, 3), 4, InputSize(60, 160, 3)),
        (ImageKind(60, 240, 1), 6, InputSize(60, 240, 1)),
        (ImageKind(50, 200, 1), 5, InputSize(50, 200, 1)),  # near enough
        (ImageKind(80, 240, 1), 4, InputSize(57, 170, 1)),  # smaller
        (ImageKind(24, 72, 1), 4, InputSize(57, 170, 1)),  # larger
        (ImageKind(100, 100, 1), 10, InputSize(155, 160, 1)),  # a column a character
        (ImageKind(10, 1000, 1), 4, InputSize(10, 1000, 1)),
        (ImageKind(8, 1, 1), 64, InputSize(1024, 1024, 1)),
        (ImageKind(8, 4000, 1), 4, InputSize(8, 1024, 1)),
    ],
)
def test_the_input_size_keeps_the_proportions_of_the_images_within_a_budget_of_pixels(images, longest, size):
    assert PrepareConfig().input_size(longest, images) == size


@pytest.mark.parametrize(
    ("config", "images", "epochs"),
    [
        (TrainConfig(epochs=7), 1, 7),
        (TrainConfig(), PRESETS["default"].images_seen // 10, 10),
        (TrainConfig(), 10, PRESETS["default"].most_epochs),
        (TrainConfig(preset="few"), 800, PRESETS["few"].most_epochs),
        (TrainConfig(preset="few"), 5000, 30),
        (TrainConfig(), 10**9, 1),
        (PRESETS["seed"].training, 24_000, None),
    ],
)
def test_the_number_of_epochs_is_given_or_derived_from_the_number_of_images(config, images, epochs):
    assert derive_epochs(config, images) == epochs


@pytest.mark.parametrize(("images", "name"), [(2, "few"), (19_999, "few"), (20_000, "default"), (10**6, "default")])
def test_the_preset_follows_the_number_of_images(images, name):
    assert preset_for(images) == name


def test_a_decaying_rate_needs_a_number_of_epochs():
    with pytest.raises(UsageError, match="--epochs"):
        derive_epochs(TrainConfig(preset="seed", schedule="cosine"), 1000)


def test_differences_name_the_field_and_both_values():
    (difference,) = differences(TrainConfig(seed=1), TrainConfig(seed=2))
    assert all(word in difference for word in ("seed", "1", "2"))


def test_equal_configurations_have_no_differences():
    assert differences(TrainConfig(), TrainConfig()) == []


def test_an_alphabet_may_be_given_to_the_generator_by_its_name():
    assert GeneratorConfig(charset="digits").charset == "0123456789"


@pytest.mark.parametrize("kind", [GeneratorConfig, PrepareConfig, TrainConfig])
@pytest.mark.parametrize("seed", [-1, 2**32, 0.5])
def test_a_seed_that_no_generator_of_chance_takes_is_refused(kind, seed):
    with pytest.raises(UsageError, match="--seed"):
        kind(seed=seed)


def test_images_larger_than_any_that_is_read_are_not_drawn():
    with pytest.raises(UsageError, match="2500x2000"):
        GeneratorConfig(width=2500, height=2000)
