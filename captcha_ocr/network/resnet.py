"""ResNet-18 (He et al. 2015, arXiv:1512.03385) whose head gives a class for every position of the
text.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from captcha_ocr.options.model import MAX_EXACT, ModelConfig, NetworkConfig, Pool

_Stride = tuple[int, int]  # of rows and columns
MIN_PROBABILITY = 1e-20  # keeps its logarithm, and the gradient of that, finite
_LIKELY = 64  # characters
_HEAD_CHANNELS = 32  # of attention
# Of the four stages for each pool: channels, as a multiple of the width, and stride. With CTC the
# last stages keep all columns and have fewer channels: as accurate as columns four times as wide,
# after much less training and at the same cost a step. Pool `slim` halves the rows one stage
# earlier and is thinner: as accurate after the same time. Narrow letters close together need
# narrower columns (pool `narrow`), which cost a quarter more (docs/decisions.md, Network).
_STAGES: dict[Pool, tuple[tuple[float, _Stride], ...]] = {
    "global": ((1, (1, 1)), (2, (2, 2)), (4, (2, 2)), (8, (2, 2))),
    "columns": ((1, (1, 1)), (2, (2, 2)), (4, (2, 1)), (4, (2, 1))),
    "slim": ((1, (2, 1)), (1.5, (2, 2)), (2, (2, 1)), (3, (1, 1))),
    "narrow": ((1, (1, 1)), (2, (2, 1)), (3, (2, 1)), (3, (2, 1))),
}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: (B, I, H, W) to (B, O, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: _Stride) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = _make_conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _make_conv3x3(out_channels, out_channels, (1, 1))
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != (1, 1) or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        # A pool of one pixel replaces the stride of the shortcut's 1x1 convolution, with the same
        # result: on a CPU the gradient of a strided one writes past its memory below 16 channels
        # (oneDNN issue 6035), and that of a slice leaves the channels-last order, in which the
        # gradient of a ReLU is 20 times as fast.
        pooled = x if self.stride == (1, 1) else functional.avg_pool2d(x, 1, self.stride)
        return functional.relu(self.norm2(self.conv2(y)).add_(self.shortcut(pooled)), inplace=True)


class ContextBlock(nn.Module):
    """A transformer block over columns: (B, columns, C) to the same shape.

    Each column learns from all others: what their letters, sizes and alphabet are. It begins with a
    convolution that tells it what is near (Chu et al. 2021, arXiv:2102.10882); norms come before
    attention and before the two linear layers (Xiong et al. 2020, arXiv:2002.04745). A new block
    changes nothing.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // _HEAD_CHANNELS)
        self.near = nn.Conv1d(channels, channels, 5, padding=2, groups=channels)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.queries_keys_values = nn.Linear(channels, 3 * channels)
        self.attended = nn.Linear(channels, channels)
        self.linear1 = nn.Linear(channels, 2 * channels)
        self.linear2 = nn.Linear(2 * channels, channels)
        for layer in (self.near, self.attended, self.linear2):
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.near(x.transpose(1, 2)).transpose(1, 2)
        y = self.queries_keys_values(self.norm1(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = y.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, columns, channels)
        # For 24 columns torch's own attention trains five times as slowly on a CPU
        likeness = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
        y = likeness.softmax(3) @ values
        x = x + self.attended(y.transpose(1, 2).flatten(2))
        changed: Tensor = x + self.linear2(functional.gelu(self.linear1(self.norm2(x))))
        return changed


def positions_from_columns(columns: Tensor, length: int, exact: bool = True) -> Tensor:
    """Turn logits of columns (B, columns, K), whose last class is the blank, into logits of
    positions (B, L, K) by CTC.

    In CTC (Graves et al. 2006, https://doi.org/10.1145/1143844.1143891) every column emits a class
    independently, and the text is what is left without repetitions and then without blanks. So the
    probability that the l-th character is c is that of a column emitting c after l - 1 characters,
    the column before it having emitted another class. The exact sum over all alignments takes one
    pass from left to right. A position's last class is the end of the text.

    Unless `exact` is set, a large alphabet takes this pass with the `_LIKELY` characters that are
    likeliest in some column of the image: gradients of the whole pass would cost more than the
    network. Those of the others that two neighbouring columns emit count twice; their probability
    is close to 0.

    CTC usually trains on the probability of the whole text. Positions allow any loss and mixed
    labels (mixup), and were as accurate (docs/decisions.md, Loss).
    """
    probabilities = columns.softmax(-1)
    if exact or columns.shape[-1] <= MAX_EXACT:
        positions, _ = _sum_alignments(probabilities, length, 1)
    else:
        likely = probabilities[..., :-1].detach().amax(1).topk(_LIKELY).indices
        # (B, 1, LIKELY and the blank)
        chosen = functional.pad(likely, (0, 1), value=columns.shape[-1] - 1)[:, None]
        compact = probabilities.gather(2, chosen.expand(-1, columns.shape[1], -1))
        others = (1 - compact.sum(-1, keepdim=True)).clamp_min(0)
        compact = torch.cat([compact[..., :-1], others, compact[..., -1:]], -1)
        emitted, totals = _sum_alignments(compact, length, 2)
        # To cast all probabilities would cost more time
        with torch.autocast(columns.device.type, enabled=False):
            positions = totals.transpose(1, 2) @ probabilities
        emitted = torch.cat([emitted[..., :-2], emitted[..., -1:]], -1)
        positions = positions.scatter(2, chosen.expand(-1, length, -1), emitted)
    return positions.clamp_min(MIN_PROBABILITY).log()


def _sum_alignments(probabilities: Tensor, length: int, unrepeated: int) -> tuple[Tensor, Tensor]:
    """Return the probabilities of positions (B, L, K) from those of columns (B, columns, K), by
    CTC.

    unrepeated: the number of classes at the end, of which the last is the blank, that two columns
    in a row emit as two. Also returns the probability of l characters before each column, (B,
    columns, L).
    """
    # OpenCV 4 runs the exported network. It knows no boolean constants, no batch size copied from a
    # shape, no products of one constant matrix with several others, and no empty slices.
    batch, _, classes = probabilities.shape
    number = torch.arange(classes, device=probabilities.device)
    blank = (number == classes - 1).to(probabilities)  # (K)
    # (B, L, K): the probability of l characters so far, class k having been emitted last; at first
    # there are none.
    state = blank * (torch.arange(length, device=blank.device) == 0)[None, :, None]
    positions, totals = torch.zeros_like(state), []
    repeatable = probabilities * (number < classes - unrepeated).to(probabilities)
    for emitted, repeated in zip(
        torch.split(probabilities, 1, 1), torch.split(repeatable, 1, 1), strict=True
    ):
        stays = repeated * state
        totals.append(state.sum(-1, keepdim=True))
        new = emitted * totals[-1] - stays  # another character, or a blank
        positions = positions + new
        longer = functional.pad(new, (0, 0, 1, 0))[:, :length]  # moved down by one row
        state = stays + blank * new + (1 - blank) * longer
    ended = state.sum(-1, keepdim=True).cumsum(1)  # at this position or before it
    all_totals = torch.cat([total.expand(batch, -1, -1) for total in totals], -1)
    return torch.cat([positions[..., :-1], ended], -1), all_totals.transpose(1, 2)


class ResNet18(nn.Module):
    """The network: images (B, C, H, W) uint8 to logits (B, L, K) float32.

    It normalises the images itself.

    as_columns: give the logits of the columns instead, (B, columns, K), with pools that have
    columns. W may be any.

    A stem is followed by four stages of two blocks (`_list_stages`), a pooling layer and a linear
    head. Pool `global` averages the last feature map and gives the L positions K logits each. The
    other pools average its rows, give every column logits, and turn those into positions by CTC.

    With thousands of classes, what the columns have in common hides from the head what tells them
    apart: such a network guesses for the first hundred thousand images. A normalisation of the
    columns' features before the head, as in the BNNeck of Luo et al. 2019 (arXiv:1903.07071), ends
    that after ten thousand (docs/decisions.md, Network).
    """

    temperature: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = _make_stem(config.size.channels, config.network)
        blocks, in_channels = [], config.network.width
        for out_channels, stride in _list_stages(config.network):
            first = BasicBlock(in_channels, out_channels, stride)
            blocks += [first, BasicBlock(out_channels, out_channels, (1, 1))]
            in_channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        longest = config.lengths.longest
        self.norm: nn.Module = nn.Identity()
        if config.network.pool == "global":
            self.head = nn.Linear(in_channels, longest * config.classes)
        else:
            self.head = nn.Linear(in_channels, config.classes)
            if config.normalises_features:
                # The head has weights and a bias of its own
                self.norm = nn.BatchNorm2d(in_channels, affine=False)
            self.context = nn.Sequential(
                *(ContextBlock(in_channels) for _ in range(config.network.context))
            )
            # A character: so an untrained network emits L of them
            blanks = max(1.0, count_columns(config) / longest - 1)
            nn.init.constant_(self.head.bias[-1:], math.log(len(config.charset) * blanks))
        self.register_buffer("temperature", torch.ones(()))  # see calibration.py

    def forward(self, images: Tensor, as_columns: bool = False) -> Tensor:
        x = images.float() / 255
        if self.config.network.normalise:
            x = standardise(x)
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.blocks(self.stem(x))  # (B, channels, rows, columns)
        longest = self.config.lengths.longest
        if self.config.network.pool == "global":
            logits: Tensor = self.head(x.mean((2, 3))).float()
            return logits.view(-1, longest, self.config.classes) / self.temperature
        # For OpenCV 4: without keepdim a network fails where there is one row, and flatten would
        # ask for the shape of an image of any width.
        features = self.norm(x.mean(2, keepdim=True)).squeeze(2)
        columns: Tensor = self.head(self.context(features.transpose(1, 2))).float()
        if self.config.reads_columns:
            columns = columns / self.temperature
        if as_columns:
            return columns
        logits = positions_from_columns(columns, longest, exact=not self.training)
        return logits if self.config.reads_columns else logits / self.temperature

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.head.weight.device


def standardise(images: Tensor) -> Tensor:
    """Bring each channel of each image (B, C, H, W) to mean 0 and standard deviation 1, regardless
    of its colours.

    Each channel by itself, so that a text nearly as red as its background stands out.
    """
    centred = images - _average_channels(images)
    # An empty channel has no deviation
    return centred / (_average_channels(centred.square()).sqrt() + 0.02)


def _average_channels(images: Tensor) -> Tensor:
    """Return the mean of each channel, (B, C, 1, 1).

    Row by row: onnxruntime adds numbers one after another, and over 9,600 of them loses two more
    digits.
    """
    return images.mean(3, keepdim=True).mean(2, keepdim=True)


def _make_conv3x3(in_channels: int, out_channels: int, stride: _Stride) -> nn.Conv2d:
    """Make a 3x3 convolution that keeps the size at stride (1, 1)."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)


def _make_stem(channels: int, network: NetworkConfig) -> nn.Sequential:
    """Make the first layers: stem `3x3` keeps the sides, `strided` makes them a quarter as long."""
    width, half = network.width, (network.width + 1) // 2
    if network.stem == "3x3":
        layers: list[nn.Module] = [_make_conv3x3(channels, width, (1, 1))]
    else:
        layers = [
            nn.Conv2d(channels, half, 5, 2, 2, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            _make_conv3x3(half, width, (2, 2)),
        ]
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def _list_stages(network: NetworkConfig) -> list[tuple[int, _Stride]]:
    """Return the channels and the stride of the four stages."""
    return [(int(factor * network.width), stride) for factor, stride in _STAGES[network.pool]]


def count_columns(config: ModelConfig) -> int:
    """Return the number of columns of the last feature map: every stride of 2 halves them, rounding
    up.
    """
    columns = config.size.width if config.network.stem == "3x3" else (config.size.width + 3) // 4
    for _, (_, stride) in _list_stages(config.network):
        columns = (columns + stride - 1) // stride
    return columns


def to_device(model: ResNet18, device: torch.device) -> ResNet18:
    """Move the model to `device`, its kernels in channels-last order, which is faster."""
    return model.to(device, memory_format=torch.channels_last)  # type: ignore
