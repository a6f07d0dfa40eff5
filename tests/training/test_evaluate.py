import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.inference.decoding import Decoder
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.device import autocast, choose_precision
from captcha_ocr.network.losses import bce_over_softmax
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig
from captcha_ocr.scores import score_texts
from captcha_ocr.training.evaluate import evaluate

from .conftest import ALONE


def network(characters: str = "ABC", lengths: tuple[int, int] = (2, 2), seed: int = 0) -> ResNet18:
    torch.manual_seed(seed)
    config = ModelConfig(
        Charset(characters),
        Lengths(*lengths),
        InputSize(8, 16, 1),
        NetworkConfig(width=4, stem="3x3", pool="global"),
    )
    return ResNet18(config).eval()


@pytest.fixture
def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (7, 1, 8, 16), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 3, (7, 2), generator=generator)


def test_batches_are_weighted_by_their_images_and_running_statistics_stay(samples):
    model, (images, labels) = network(), samples
    before = model.stem[1].running_mean.clone()
    whole = evaluate(model.train(), [samples], "bce", ALONE)
    assert torch.equal(model.stem[1].running_mean, before)
    in_parts = [(images[:5], labels[:5]), (images[5:], labels[5:])]
    parts = evaluate(model, in_parts, "bce", ALONE)
    assert parts.pairs == whole.pairs
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    with autocast(images.device, choose_precision("auto", images.device)):
        logits = model(images)
    assert whole.loss == pytest.approx(bce_over_softmax(logits, labels).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("characters", "lengths", "truths"),
    [
        ("ABC", (2, 2), ["AB", "BB", "CA", "AC", "AA", "BC", "CC"]),
        ("AaB", (1, 3), ["A", "BB", "aAB", "a", "AA", "B", "aB"]),
    ],
)
def test_the_scores_are_those_of_the_texts(samples, characters, lengths, truths):
    model, (images, _) = (
        network(characters, lengths, seed=19),
        samples,
    )  # it reads characters behind an end, too
    readings = Decoder(model.config).read(model(images).detach().numpy())
    expected = score_texts(truths, [reading.text for reading in readings])
    labels = torch.from_numpy(model.config.charset.encode(truths)).long()
    scores = evaluate(model, [(images, labels)], "bce", ALONE)
    assert (scores.images, scores.pairs) == (7, expected.pairs)
    assert (scores.exact, scores.folded, scores.lookalike) == (
        expected.exact,
        expected.folded,
        expected.lookalike,
    )


def test_look_alikes_are_counted_apart(samples):
    model, (images, _) = network("0OA", seed=1), samples
    codes = model(images)[..., :3].argmax(-1)
    labels = torch.where(codes < 2, 1 - codes, codes)  # every O read as 0 and every 0 as O
    scores = evaluate(model, [(images, labels)], "bce", ALONE)
    assert scores.lookalike == int((codes < 2).any(1).sum()) > 0
    assert scores.summary()["merged_match"] == 1.0
