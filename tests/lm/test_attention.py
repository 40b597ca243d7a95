"""A model that the package makes or loads leaves cuDNN's attention out."""

import torch

from nbcourse.lm import loading, tiny
from nbcourse.lm.attention import attend_without_cudnn
from tests import hub


def test_attention_of_a_model_is_computed_without_cudnn(tmp_path):
    """Its backward pass gives NaN on an H100 for some lengths."""
    folder = hub.checkpoint(tmp_path / "hub")
    ways = (
        attend_without_cudnn,
        lambda: tiny.model(tiny.tokenizer()),
        lambda: loading.load(folder, "cpu"),
    )
    for make in ways:
        torch.backends.cuda.enable_cudnn_sdp(True)
        make()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
