"""What each process of test_trl_processes does: `trl_parallel.py out.json recipes folder`."""

import sys
from pathlib import Path

from nbcourse.cli import app
from nbcourse.experiments import trl, trl_trainer
from nbcourse.training.processes import connect
from tests import script


def by_command(recipe: Path, folder: Path) -> dict:
    """As `accelerate launch -m nbcourse train … --engine trl` does it.

    A reward that every model earns half of the time takes the verifier's place: whether the sum of
    a response's tokens is odd.
    """
    batches, trained = [], []

    def score(learner, rollout, asked):
        odd = (rollout.tokens.masked_fill(~rollout.mask, 0).sum(dim=1) % 2).float()
        batches.append(
            {
                "prompts": [problem.prompt for problem in asked],
                "completions": [
                    ids[keep].tolist()
                    for ids, keep in zip(rollout.tokens, rollout.mask, strict=True)
                ],
                "scores": odd.tolist(),
            }
        )
        return odd, odd

    score_before, build = trl_trainer.score, trl.build
    trl_trainer.score = score
    trl.build = lambda *args, **options: trained.append(build(*args, **options)) or trained[-1]
    try:
        arguments = ["train", str(recipe), "--engine", "trl", "--out", str(folder)]
        app(arguments, standalone_mode=False)
    finally:
        trl_trainer.score, trl.build = score_before, build
    (learner,) = trained
    weights = {name: p.double().sum().item() for name, p in learner.policy.named_parameters()}
    return {"batches": batches, "weights": weights}


def main(out: str, recipes: str, folder: str) -> None:
    processes = connect()
    report = {"rank": processes.rank, "count": processes.count}
    report["runs"] = {
        path.stem: by_command(path, Path(folder) / path.stem)
        for path in sorted(Path(recipes).glob("*.toml"))
    }
    script.end(report, Path(out), processes)


if __name__ == "__main__":
    main(*sys.argv[1:])
