from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest

from captcha_ocr.charset import Charset, find_charset
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import Decoder, allowed_classes, compute_positions, softmax
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig

CONFIG = ModelConfig(Charset("AB"), Lengths(1, 3), InputSize(8, 48, 1), NetworkConfig())


def read(rows: list[list[float]], charset: str | None = None, lengths: Lengths | None = None):
    """Read logits (3, 3). The columns are A, B and nothing."""
    (reading,) = Decoder(CONFIG, charset, lengths).read(np.array([rows], np.float32))
    return reading


ANY_LENGTH = [[9, 0, 0], [0, 5, 9], [5, 0, 9]]


@pytest.mark.parametrize(
    ("rows", "charset", "lengths", "text"),
    [
        ([[9, 0, 0], [0, 0, 9], [0, 9, 0]], None, None, "A"),  # it ends at its first nothing
        ([[9, 0, 0], [0, 9, 0], [0, 9, 0]], None, None, "ABB"),
        ([[2, 1, 9], [0, 0, 9], [0, 0, 9]], None, None, "A"),  # and is never empty
        (ANY_LENGTH, None, Lengths(1, 1), "A"),
        (ANY_LENGTH, None, Lengths(2, 2), "AB"),
        (ANY_LENGTH, None, Lengths(3, 3), "ABA"),
        (ANY_LENGTH, None, Lengths(2, 3), "AB"),
        ([[9, 1, 0], [9, 1, 0], [5, 0, 9]], "B", None, "BB"),
    ],
)
def test_a_text_is_the_likeliest_of_the_lengths_and_the_alphabet(rows, charset, lengths, text):
    assert read(rows, charset, lengths).text == text


@pytest.mark.parametrize("step", [None, 8])
@pytest.mark.parametrize("shape", [(), (2,), (2, 0, 3), (2, 49, 3), (2, 3, 4), (1, 3, 3)])
def test_logits_of_another_shape_do_not_fit(step, shape):
    network = NetworkConfig(pool="columns" if step else "global")
    decoder = Decoder(replace(CONFIG, size=InputSize(8, 48, 1, step), network=network))
    assert decoder.fits(np.zeros((2, 3, 3), np.float32), 2)
    assert not decoder.fits(np.zeros(shape, np.float32), 2)
    assert not decoder.fits(np.full((2, 3, 3), np.nan, np.float32), 2)


def test_the_confidence_includes_the_end_of_the_text_and_nothing_after_it():
    end = np.exp(9) / (np.exp(9) + 2)
    first = np.exp(9) / (np.exp(9) + 1)  # the first place cannot be empty
    assert read([[9, 0, 0], [0, 0, 9], [0, 0, 0]]).confidence == pytest.approx(first * end)


@pytest.mark.parametrize("lengths", [Lengths(4, 4), Lengths(1, 4)], ids=str)
def test_lengths_that_the_model_does_not_read_are_refused(lengths):
    with pytest.raises(UsageError, match=r"\b1-3\b"):
        allowed_classes(CONFIG, lengths=lengths)


# Logits of A B C D and the end, for "ABC": at each position what is read has 9, and these others.
@pytest.mark.parametrize(
    ("others", "runners"),
    [
        (
            [{"B": 5, "D": 1}, {"C": 5, "D": 1}, {"": 5, "D": 1}],
            "DDD",
        ),  # a character too few moves the rest to the left
        (
            [{"D": 1}, {"A": 5, "D": 1}, {"B": 5, "D": 1}],
            "DDD",
        ),  # one too many moves it to the right
        ([{"D": 1}, {"C": 5, "D": 1}, {"": 5, "D": 1}], "DDD"),  # too few, after the first
        (
            [{"D": 1}, {"A": 7, "D": 1}, {"B": 2, "D": 1}],
            "DAD",
        ),  # no shift: the next position knows nothing of it
        ([{"B": 7, "D": 1}, {"C": 1, "D": 2}, {"D": 1}], "BDD"),
        ([{"D": 1}, {"D": 1}, {"": 8, "D": 1}], "DDD"),  # the end is no character
        ([{"C": 4, "D": 3}, {"D": 2}, {"A": 3, "D": 2}], "CDA"),  # further away than a neighbour
    ],
)
@pytest.mark.parametrize("longest", [3, 4])
def test_the_runner_up_is_what_could_stand_in_a_characters_place(others, runners, longest):
    config = replace(CONFIG, charset=Charset("ABCD"), lengths=Lengths(1, longest))
    # In a fourth place a shift to the right goes on.
    others = [*others, {"C": others[2].get("B", 0)}]
    places = [{**other, read: 9} for other, read in zip(others, ["A", "B", "C", ""], strict=True)]
    logits = [place.get(name, 0) for place in places[:longest] for name in config.class_names]
    (reading,) = Decoder(config).read(np.array(logits, np.float32).reshape(1, longest, 5))
    assert reading.text == "ABC"
    assert "".join(character.runner_up for character in reading.characters) == runners
    for character in reading.characters:
        assert 0 < character.runner_up_confidence < character.confidence


def test_a_shift_is_named_where_there_is_no_other_character_and_nothing_where_there_is_none():
    first, second = read([[9, 8, 0], [8, 9, 0], [0, 0, 9]]).characters
    assert (first.runner_up, second.runner_up) == ("B", "A")
    (only,) = read([[9, 1, 0], [0, 0, 9], [0, 0, 9]], charset="A").characters
    assert (only.runner_up, only.runner_up_confidence) == ("", 0)


def test_every_character_of_an_alphabet_may_be_read_a_space_too():
    charset = Charset(" 1क" + "कि")
    config = ModelConfig(charset, Lengths(2, 3), CONFIG.size, CONFIG.network)
    assert allowed_classes(config)[0].tolist() == [True] * 4 + [False]
    assert allowed_classes(config, " कि")[0].tolist() == [True, False, False, True, False]
    logits = np.full((1, 3, 5), -9, np.float32)
    logits[0, [0, 1, 2], [1, 0, 3]] = 9
    (reading,) = Decoder(config).read(logits)
    assert reading.text == "1 कि"


def test_without_ctc_the_end_can_be_the_runner_up():
    config = replace(CONFIG, network=NetworkConfig(pool="global"))
    logits = np.array([[[9, 0, 0], [0, 9, 8], [0, 0, 9]]], np.float32)
    (reading,) = Decoder(config).read(logits)
    assert reading.text == "AB"
    assert [character.runner_up for character in reading.characters] == ["B", ""]


@pytest.mark.parametrize(
    ("characters", "seen", "text"),
    [
        ("\u05d0\u05d1", "\u05d0\u05d1", "\u05d1\u05d0"),
        ("\u05d01", "\u05d01", "1\u05d0"),
        ("\u05d012", "12\u05d0", "\u05d012"),
        ("\u0627\u0628", "\u0627\u0627\u0628", "\u0628\u0627\u0627"),
        ("\u05d0b", "bb", "bb"),
    ],
)
def test_the_characters_of_a_text_from_right_to_left_are_in_the_order_of_the_text(
    characters, seen, text
):
    config = replace(CONFIG, charset=find_charset([characters]))
    numbers = [*map(config.charset.symbols.index, seen), -1, -1][:3]
    logits = np.zeros((1, 3, config.classes), np.float32)
    # Each position has a confidence of its own.
    logits[0, [0, 1, 2], numbers] = [9, 10, 11]
    (reading,) = Decoder(config).read(logits)
    assert reading.text == text
    assert [each.character for each in reading.characters] == list(text)
    confidences = {each.character: each.confidence for each in reading.characters}
    assert len({confidences[seen[0]], confidences[seen[-1]]}) == len({seen[0], seen[-1]})
    assert all(each.runner_up != each.character for each in reading.characters)


def test_both_cases_of_a_letter_count_as_one_the_lower_if_both_are_read():
    charset = Charset("ABab1")
    config = ModelConfig(charset, Lengths(1, 1), InputSize(8, 48, 1), NetworkConfig(pool="global"))
    logits = np.log(np.array([[[0.3, 0.1, 0.2, 0.05, 0.35]]])).astype(np.float32)
    decoders = [
        Decoder(config),
        Decoder(config, fold_case=True),
        Decoder(config, charset="AB", fold_case=True),
    ]
    readings = [decoder.read(logits)[0] for decoder in decoders]
    assert [reading.text for reading in readings] == ["1", "a", "A"]
    assert [reading.confidence for reading in readings] == pytest.approx([0.35, 0.5, 0.5 / 0.65])


EVERY, BLANK = np.arange(4), 3  # classes A, a, B and the blank


def columns_like(seed: int, count: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2, size=(1, count, 4)).astype(np.float32)


def by_all_alignments(columns: np.ndarray, lengths: Lengths, counts_as: np.ndarray) -> np.ndarray:
    """Add up the probability of every alignment whose text is left: the definition of CTC."""
    probabilities, positions = softmax(columns.astype(np.float64)), np.zeros((5, 4))
    for alignment in product(range(4), repeat=len(columns)):
        read = counts_as[list(alignment)]
        text = [each for each, _ in groupby(read) if each != BLANK]
        if (read >= 0).all() and len(text) in lengths:
            probability = np.prod(probabilities[np.arange(len(columns)), alignment])
            padded = text + [BLANK] * (5 - len(text))
            positions[np.arange(5), padded] += probability
    return positions / positions[0].sum()


@pytest.mark.parametrize(
    "lengths", [Lengths(1, 5), Lengths(1, 3), Lengths(2, 2), Lengths(3, 4)], ids=str
)
@pytest.mark.parametrize(
    "counts_as",
    [EVERY, np.array([0, -1, 2, 3]), np.array([1, 1, 2, 3])],
    ids=["all", "without a", "folded"],
)
def test_positions_are_exact_among_the_characters_and_lengths_that_are_left(lengths, counts_as):
    columns = columns_like(1)
    positions = np.exp(compute_positions(columns, counts_as, lengths, 5))
    assert positions[0] == pytest.approx(
        by_all_alignments(columns[0], lengths, counts_as), abs=1e-9
    )


def test_the_images_of_a_batch_do_not_depend_on_each_other():
    columns = np.concatenate([columns_like(seed) for seed in (2, 3)])
    both = compute_positions(columns, EVERY, Lengths(1, 4), 4)
    alone = [compute_positions(each[None], EVERY, Lengths(1, 4), 4)[0] for each in columns]
    assert both == pytest.approx(np.stack(alone))


@pytest.mark.parametrize(("fold_case", "text"), [(False, "8X5="), (True, "8x5=")])
def test_a_misread_sum_is_mended_in_the_case_that_is_read(fold_case, text):
    charset = Charset("0123456789+=Xx")
    size, network = InputSize(8, 64, 1, 8), NetworkConfig(pool="columns")
    probabilities = np.full((1, 8, 15), 1e-4)
    for share, emitted in ((0.6, "8_1_5_=_"), (0.3, "8_X_5_=_")):
        for column, character in enumerate(emitted):
            probabilities[0, column, [*charset.symbols, "_"].index(character)] += share
    decoder = Decoder(ModelConfig(charset, Lengths(1, 4), size, network), fold_case=fold_case)
    (reading,) = decoder.read(np.log(probabilities).astype(np.float32))
    assert reading.text == text
    assert reading.characters[1].confidence == pytest.approx(0.3, abs=0.1)
