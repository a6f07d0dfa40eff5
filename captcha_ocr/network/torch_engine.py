"""Compute a network's logits with torch, on any device."""

import copy
import os
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from captcha_ocr.errors import UsageError
from captcha_ocr.network.device import describe_device
from captcha_ocr.network.resnet import ResNet18, to_device
from captcha_ocr.system.forking import computing


def fuse_norms(model: ResNet18) -> ResNet18:
    """Return a copy for inference, its batch norms fused into the convolutions before them: the
    same logits, faster.
    """
    model = copy.deepcopy(model).eval()
    for part in model.modules():
        for (name, layer), (norm, following) in pairwise(list(part.named_children())):
            if isinstance(layer, nn.Conv2d) and isinstance(following, nn.BatchNorm2d):
                setattr(part, name, fuse_conv_bn_eval(layer, following))
                setattr(part, norm, nn.Identity())
    return model


class TorchEngine:
    """An Engine that computes with torch on one device.

    It computes in float32, like the exported network: in bf16 one text in a thousand was another.
    """

    def __init__(self, model: ResNet18, device: torch.device) -> None:
        self.model = to_device(fuse_norms(model), device)
        self.config, self.device, self._process = model.config, device, os.getpid()
        # One decodes images, which holds Python's lock, while the network computes for the other.
        self.readers = min(2, torch.get_num_threads()) if device.type == "cpu" else 2

    @torch.inference_mode()
    def logits(self, images: np.ndarray) -> np.ndarray:
        """Return the logits (B, L, K) float32 of images (B, C, H, W) uint8.

        They are of columns if `config.reads_columns`. UsageError in a forked process if the engine
        was made before the fork on a device other than the CPU.
        """
        if self.device.type != "cpu" and self._process != os.getpid():
            raise UsageError(
                f"a recognizer on {self.device} cannot be used in a forked process; "
                'start the process with multiprocessing.get_context("spawn")'
            )
        with computing():
            logits: Tensor = self.model(
                torch.from_numpy(images).to(self.device), as_columns=self.config.reads_columns
            )
            return logits.cpu().numpy()

    def __str__(self) -> str:
        return f"{describe_device(self.device)}, fp32"
