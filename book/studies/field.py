"""The field, examined: what `nbcourse.examine` says of the losses that other libraries install.

    python -m book.studies.field book/runs/field

goes through what is installed of TRL, torchrl and polgrad, and writes `environment.json` with the
versions and `results.jsonl` with a line for each loss. What is not installed is left out, and said.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nbcourse.examine import Report, examine
from nbcourse.examine.peers import PACKAGES, Peer, installed
from nbcourse.experiments import records
from nbcourse.progress import track


def result(peer: Peer, report: Report) -> dict[str, Any]:
    """What is kept of an examination, and what polgrad says of the same loss."""
    said = report.as_dict()
    kept = ("verdict", "direction", "length", "kl", "mask", "microbatch", "nearest")
    return {
        "library": peer.library,
        "package": peer.package,
        "settings": peer.settings,
        **{key: said[key] for key in kept},
        "findings": [
            {
                "kind": one["kind"],
                "code": one["id"],
                "text": _in_words(one),
                "section": one["section"],
            }
            for one in said["findings"]
        ],
        "polgrad": _by_polgrad(peer),
    }


def _in_words(finding: Mapping[str, Any]) -> str:
    """What is wrong, and what shows it, in one sentence."""
    shown = f": {finding['evidence']}." if finding["evidence"] else "."
    return finding["sentence"].removesuffix(".") + shown


def _by_polgrad(peer: Peer) -> dict[str, Any] | None:
    """The reference of polgrad's that is nearest on its random tensors; None without polgrad.

    polgrad's comparisons have no reference policy, so a loss with a KL is not asked.
    """
    try:
        from polgrad.aggregate import Aggregation
        from polgrad.conformance.harness import compare_losses
        from polgrad.losses import (
            ClipConfig,
            PolicyLossConfig,
            RatioKind,
            SurrogateKind,
            policy_loss,
        )
    except ImportError:
        return None
    if "ref_log_probs" in peer.subject.takes:
        return None

    def theirs(*, logprobs: Tensor, old_logprobs: Tensor, **given: Tensor) -> Tensor:
        mask = given.pop("response_mask")
        names = {"log_probs": logprobs, "old_log_probs": old_logprobs, "mask": mask}
        return peer.subject.function(**names, **given)

    surrogates = {
        "clip": (SurrogateKind.PG_CLIP, ClipConfig(0.2, 0.2)),
        "clip, higher": (SurrogateKind.PG_CLIP, ClipConfig(0.2, 0.28)),
        "dual clip": (SurrogateKind.PG_CLIP, ClipConfig(0.2, 0.2, ratio_cap=3.0)),
        "CISPO": (SurrogateKind.CISPO, ClipConfig(None, 4.0)),
        "no clip": (SurrogateKind.PG, None),
    }
    found = []
    for name, (surrogate, clip) in surrogates.items():
        for ratio in (RatioKind.TOKEN, RatioKind.SEQUENCE):
            for mean in Aggregation:
                length = 8 if mean is Aggregation.TOKEN_SUM_NORM else None
                config = PolicyLossConfig(ratio, surrogate, clip, mean, norm_len=length)
                compared = compare_losses(
                    lambda config=config, **given: policy_loss(config, **given).loss,
                    theirs,
                    n_cases=16,
                    shapes=((4, 8),),
                    generator=torch.Generator().manual_seed(0),
                )
                said = f"{name}, ratio of the {ratio.value}, {mean.value}"
                away = 1 - compared.grad_cosine_min  # another length of the step is no other loss
                found.append((round(away, 9), compared.max_grad_rel_diff, said))
    away, difference, nearest = min(found)
    return {"nearest": nearest, "cosine": 1 - away, "difference": difference}


def record(folder: Path) -> None:
    """Examine all that is installed, and write down what came of it."""
    peers, versions = installed()
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**records.environment(1), "peers": versions}
    records.write_json(folder / records.ENVIRONMENT, environment)
    results = []
    for peer in track(peers, "losses", total=len(peers)):
        results.append(result(peer, examine(peer.subject)))
        records.write_results(folder, results)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Examine the losses of installed libraries.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    record(folder)
    missing = PACKAGES.keys() - installed()[1].keys()
    print(f"everything is in {folder}" + "".join(f"; not installed: {name}" for name in missing))


if __name__ == "__main__":
    main()
