"""Start from a trained model of another alphabet, length or input size, and average two models'
weights.
"""

from collections.abc import Mapping

from torch import Tensor

from captcha_ocr.network.resnet import ResNet18


def copy_matching_weights(source: ResNet18, target: ResNet18) -> None:
    """Copy the weights of `source` to `target`, which has the same NetworkConfig.

    Convolutions and norms are copied; the first convolution is adapted to another number of
    channels. Of the head, the characters that both models know are copied, in either case, if both
    or neither normalise its features. With CTC no weight depends on lengths or sizes.
    """
    state = target.state_dict()
    both_alike = type(source.norm) is type(target.norm)
    for name, tensor in source.state_dict().items():
        if name == "stem.0.weight" and tensor.shape != state[name].shape:  # (O, C, H, W)
            # Grey images in colour have equal channels: each takes its part of the sum over the old
            # channels.
            channels = state[name].shape[1]
            state[name] = tensor.sum(1, keepdim=True).expand(-1, channels, -1, -1) / channels
        elif name.startswith(("head.", "norm.")) and not both_alike:
            continue
        elif name.startswith("head."):
            _copy_characters(
                tensor, source.config.class_names, state[name], target.config.class_names
            )
        elif name != "temperature":
            state[name] = tensor
    target.load_state_dict(state)


def _copy_characters(source: Tensor, known: list[str], target: Tensor, wanted: list[str]) -> None:
    """Copy a head's weights or biases (positions * K, …) of the characters that both class lists
    have.
    """
    source, target = (
        tensor.view(-1, len(names), *tensor.shape[1:])
        for tensor, names in ((source, known), (target, wanted))
    )
    positions = min(len(source), len(target))
    for number, name in enumerate(wanted):
        same = next((c for c in (name, name.lower(), name.upper()) if c in known), None)
        if same is not None:
            target[:positions, number] = source[:positions, known.index(same)]


def blend_weights(model: ResNet18, weights: Mapping[str, Tensor], share: float) -> None:
    """Replace the weights of a model, and the statistics of its norms, by their mean with others.

    share: that of the others in it, 0 to 1.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.lerp_(weights[name], share)
