"""ResNet-18 (He et al. 2015, arXiv:1512.03385) with a softmax for every place in a text, which CTC makes of columns."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from captcha_ocr.config import ModelConfig, NetworkConfig

Stride = tuple[int, int]  # of rows and columns
LEAST = 1e-20  # probability, so that its logarithm, and the gradient of that, stay within bounds


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; (B, I, H, W) to (B, O, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: Stride) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = conv3x3(out_channels, out_channels, (1, 1))
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != (1, 1) or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        # The shortcut's stride is taken before its 1x1 convolution, which is the same: on a CPU the
        # gradient of a strided one writes past its memory below 16 channels (oneDNN issue 6035).
        seen = x[:, :, :: self.stride[0], :: self.stride[1]]
        return functional.relu(self.norm2(self.conv2(y)).add_(self.shortcut(seen)), inplace=True)


def places_from_columns(columns: Tensor, length: int) -> Tensor:
    """Logits of columns (B, columns, K), of which the last class is blank, to logits of places (B, L, K): CTC.

    CTC (Graves et al. 2006, https://doi.org/10.1145/1143844.1143891) lets every column draw a class by itself, and
    reads a text from them by leaving out repetitions and then blanks. So the probability that the l-th character is c
    is that of c being drawn where l - 1 characters are read and the last draw was not c: a sum over all drawings,
    exact, which one pass from left to right gives. A place's last class is nothing: the text is shorter.

    CTC mostly trains on the probability of the whole text instead. Those of places take any loss, and the labels of two
    images mixed, and were as accurate (docs/lab-notebook.md, 2026-11-22).
    """
    batch, _, classes = columns.shape
    probabilities = columns.softmax(-1)
    blank = torch.arange(classes, device=columns.device) == classes - 1  # (K)
    onwards = columns.new_ones(length, length).tril(-1).triu(-1)  # times (L, …) moves its rows down by one
    # How likely it is that so many characters are read (L) and this was drawn last (K); at first nothing is read.
    state = (blank * (torch.arange(length, device=columns.device) == 0)[:, None]).to(columns).expand(batch, -1, -1)
    read = torch.zeros_like(state)
    repeating = probabilities.masked_fill(blank, 0)
    for drawn, repeated in zip(torch.split(probabilities, 1, 1), torch.split(repeating, 1, 1), strict=True):
        stays = repeated * state
        new = drawn * state.sum(-1, keepdim=True) - stays  # another character, or a blank
        read = read + new
        state = stays + torch.where(blank, new, onwards @ new)
    ended = state.sum(-1, keepdim=True).cumsum(1)  # with so many characters or fewer
    return torch.cat([read[..., :-1], ended], -1).clamp_min(LEAST).log()


class ResNet18(nn.Module):
    """Images to logits: (B, C, H, W) uint8 in, (B, L, K) float32 out; normalisation is inside.

    A stem and four stages of two blocks (`stages_of`). Then either the last feature map is averaged over its rows, a
    linear layer gives every column logits, and CTC makes of them those of the places; or it is averaged over all
    positions, and a linear layer gives the L places their K logits each.
    """

    temperature: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.network.width
        self.stem = make_stem(config.size.channels, config.network)
        blocks, in_channels = [], width
        for out_channels, stride in stages_of(config.network):
            blocks += [BasicBlock(in_channels, out_channels, stride), BasicBlock(out_channels, out_channels, (1, 1))]
            in_channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        longest = config.lengths.longest
        if config.network.pool == "global":
            self.head = nn.Linear(in_channels, longest * config.classes)
        else:
            self.head = nn.Linear(in_channels, config.classes)
            blanks = max(1.0, columns_of(config) / longest - 1)  # so that about as many characters are drawn at first
            nn.init.constant_(self.head.bias[-1:], math.log(len(config.charset) * blanks))
        self.register_buffer("temperature", torch.ones(()))  # found when training is done (calibrate.py)

    def forward(self, images: Tensor) -> Tensor:
        x = images.float() / 255
        if self.config.network.normalise:
            x = standardise(x)
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.blocks(self.stem(x))  # (B, channels, rows, columns)
        longest = self.config.lengths.longest
        if self.config.network.pool == "global":
            logits: Tensor = self.head(x.mean((2, 3))).float().unflatten(-1, (longest, self.config.classes))
        else:
            logits = places_from_columns(self.head(x.mean(2).transpose(1, 2)).float(), longest)
        return logits / self.temperature

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.head.weight.device


def standardise(images: Tensor) -> Tensor:
    """Each channel of each image (B, C, H, W) brought to mean 0 and deviation 1: its colours tell nothing of its text.

    What is nearly as red as its background stands out if the reds are stretched by themselves.
    """
    centred = images - mean_of(images)
    return centred / (mean_of(centred.square()).sqrt() + 0.02)  # an empty channel has no deviation


def mean_of(images: Tensor) -> Tensor:
    """The mean of each channel, (B, C, 1, 1).

    Of the rows first: onnxruntime adds up all that it is given in turn, and of 9,600 numbers loses two digits more.
    """
    return images.mean(3, keepdim=True).mean(2, keepdim=True)


def conv3x3(in_channels: int, out_channels: int, stride: Stride) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size at stride (1, 1)."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)


def make_stem(channels: int, network: NetworkConfig) -> nn.Sequential:
    """The first layers: `3x3` keeps the resolution, `strided` quarters it."""
    width = network.width
    if network.stem == "3x3":
        return nn.Sequential(conv3x3(channels, width, (1, 1)), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    half = (width + 1) // 2
    return nn.Sequential(
        nn.Conv2d(channels, half, 5, 2, 2, bias=False),
        nn.BatchNorm2d(half),
        nn.ReLU(inplace=True),
        conv3x3(half, width, (2, 2)),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


def stages_of(network: NetworkConfig) -> tuple[tuple[int, Stride], ...]:
    """The channels and the stride of the four stages, each of two blocks.

    Where columns are kept apart the last stages keep all of them and have fewer channels: as accurate as columns four
    times as wide, and much sooner, for as much arithmetic (docs/lab-notebook.md, 2026-11-22). Slim letters set tight
    want them narrower still, for a quarter more of it (2026-11-23).
    """
    width = network.width
    if network.pool == "narrow":
        return (width, (1, 1)), (2 * width, (2, 1)), (3 * width, (2, 1)), (3 * width, (2, 1))
    if network.pool == "columns":
        return (width, (1, 1)), (2 * width, (2, 2)), (4 * width, (2, 1)), (4 * width, (2, 1))
    return (width, (1, 1)), (2 * width, (2, 2)), (4 * width, (2, 2)), (8 * width, (2, 2))


def columns_of(config: ModelConfig) -> int:
    """The number of columns of the last feature map: every stride of 2 halves them, rounding up."""
    columns = config.size.width if config.network.stem == "3x3" else (config.size.width + 3) // 4
    for _, (_, stride) in stages_of(config.network):
        columns = (columns + stride - 1) // stride
    return columns


def count_parameters(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def to_device(model: ResNet18, device: torch.device) -> ResNet18:
    """The model on `device`, its kernels laid out channels last, which is the faster order everywhere."""
    return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
