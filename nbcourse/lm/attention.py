"""Which of PyTorch's kernels compute attention on a GPU. Chapter 15 tells why it matters."""

import torch


def attend_without_cudnn() -> None:
    """Have PyTorch compute attention on a GPU without cuDNN from now on.

    On an H100, PyTorch from 2.11 on (seen with 2.11, reported of 2.13) chooses cuDNN where there is
    a mask, and its gradient can be NaN where sequences have 64 tokens more than a multiple of 128.

    Source: PyTorch's issue 196678. Book: appendix L, "When the card is wrong".
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
