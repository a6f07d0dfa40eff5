"""Starting from a trained model of another alphabet, length or size: whatever of it fits is taken over."""

from collections.abc import Sequence

from torch import Tensor

from captcha_ocr.network.resnet import ResNet18


def copy_matching_weights(source: ResNet18, target: ResNet18) -> None:
    """Give `target` the weights of `source`, whose NetworkConfig is the same.

    Convolutions and norms as they are, the first one for another number of channels made to fit; of the classifier the
    characters that both know, in either case. Where columns are kept nothing depends on lengths and sizes.
    """
    state, old = target.state_dict(), source.state_dict()
    names, known = target.config.class_names, source.config.class_names
    for name, tensor in old.items():
        if name == "stem.0.weight":
            state[name] = with_channels(tensor, state[name].shape[1])
        elif name.startswith("head."):
            state[name] = by_character(state[name], names, tensor, known)
        elif name != "temperature":
            state[name] = tensor
    target.load_state_dict(state)


def with_channels(kernel: Tensor, channels: int) -> Tensor:
    """A first convolution (O, C, H, W) that sees in `channels` what it saw before, all of them being alike."""
    if channels == kernel.shape[1]:
        return kernel
    return kernel.sum(1, keepdim=True).expand(-1, channels, -1, -1) / channels


def by_character(fresh: Tensor, names: Sequence[str], old: Tensor, known: Sequence[str]) -> Tensor:
    """A classifier's weights or biases, (places * K, …), with those of the characters that the old one knew."""
    taken = fresh.clone().view(-1, len(names), *fresh.shape[1:])
    source = old.view(-1, len(known), *old.shape[1:])
    places = min(len(taken), len(source))
    for number, name in enumerate(names):
        same = next((c for c in (name, name.lower(), name.upper()) if c in known), None)
        if same is not None:
            taken[:places, number] = source[:places, known.index(same)]
    return taken.view(fresh.shape)
