"""Two published doctors on the benchmark of silent failures, by the rule that ours is scored by.

    python -m pip install --target PEERS rlprobe==0.1.0 rldoctor==0.2.0
    PYTHONPATH=PEERS python -m book.studies.peers \
        book/runs/silent-failures book/runs/silent-failures-peers

Both read the curves of a run, and get ours under TRL's names or their own. Neither has a word for
most of our causes: their words are symptoms. So each word is taken for every cause that its own
documentation, or the remedy that it prints, speaks of, and for those that bring the symptom about;
a run counts as named if the planted cause is one of them. Findings below a warning do not count
against a healthy run. Neither is a dependency of ours, so they are imported where they are asked;
a package that is not installed is left out, with a line that says so.

rlprobe says nothing of a run of fewer than thirty steps, and the benchmark's have twenty: it is
scored as it is, and once more with that floor lowered.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.experiments import evidence, records
from nbcourse.experiments.small_lab import ANSWERS, LOGS, SCORE
from nbcourse.mistakes.catalogue import current
from nbcourse.progress import track

from .silent_failures import print_score, share

Words = Mapping[str, frozenset[str]]  # what a doctor says → causes that it may mean


def _words(table: Mapping[str, str]) -> Words:
    return {word: frozenset(causes.split()) for word, causes in table.items()}


KL = "kl-sign inverted-kl kl-without-gradient wrong-kl reference-moves reference-noise "
KL += "reference-mismatch"
RATIO = "stale-old-log-probs stale-sampler inverted-ratio inverted-clip"
NOTHING_TO_LEARN = "no-signal silent-verifier same-samples amplified-flat-groups"
TOO_SURE = "sampler-temperature learner-temperature sampler-truncation same-samples"
ENDS = "all-truncated paid-truncation masked-eos"

RLPROBE = _words(
    {
        "KL_BLOWUP": KL,
        "ENTROPY_COLLAPSE": TOO_SURE,
        "REWARD_HACK_LENGTH": f"lenient-verifier {ENDS} trained-padding",
        "FORMAT_GAMING": "lenient-verifier wrong-scores",
        "CLIP_SATURATION": RATIO,
        "DEGENERATE_GROUPS": NOTHING_TO_LEARN,
        "ADV_COLLAPSE": "no-signal wrong-advantages missing-baseline padded-whitening",
        "VALUE_DIVERGENCE": "value-target-rewards wrong-value-targets misplaced-reward",
        "GRAD_PATHOLOGY": "amplified-flat-groups lost-moments idle-optimiser rounded-updates",
        "TRUNCATION_STARVE": ENDS,
        "REPETITION_SPIRAL": "same-samples",
        "REWARD_STD_DEATH": NOTHING_TO_LEARN,
        "REF_POLICY_DRIFT_ASYMMETRY": "reference-mismatch left-padding",
        "THROUGHPUT_ROT": "",
    }
)
RL_DOCTOR = _words(
    {
        "advantage_collapse": NOTHING_TO_LEARN,
        "entropy_collapse": TOO_SURE,
        "reward_hacking": "lenient-verifier paid-truncation shifted-rewards wrong-scores",
        "length_pathology": f"{ENDS} trained-padding",
        "clip_saturation": RATIO,
        "kl_drift": KL,
        "gradient_pathology": "idle-optimiser lost-moments rounded-updates amplified-flat-groups",
        "plateau": "idle-optimiser rounded-updates no-signal flipped-loss",
        "reward_composition": "lenient-verifier wrong-scores",
    }
)

TRL_NAMES = {
    "step": "step",
    "reward": "reward",
    "no_spread": "frac_reward_zero_std",
    "entropy": "entropy",
    "kl_ref": "kl",
    "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean",
    "policy_loss": "loss",
    "grad_norm": "grad_norm",
    "length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "explained_variance": "critic/vf_explained_var",
    "held_out": "eval/accuracy",
}
RLPROBE_NAMES = {
    "reward": "reward_mean",
    "no_spread": "zero_variance_group_frac",
    "entropy": "entropy_mean",
    "kl_ref": "kl_mean",
    "policy_loss": "loss",
    "grad_norm": "grad_norm",
    "length": "completion_len_mean",
    "truncated": "truncation_rate",
    "value_loss": "value_loss",
    "explained_variance": "value_explained_variance",
}


def rlprobe(run: Evidence, *, shortest: int = 30) -> list[str]:
    """The signatures that rlprobe sees in a run, worst first.

    Args:
        run: its curves.
        shortest: how many steps a run must have for its detectors to look at it; theirs is 30.
    """
    doctor, schemas = import_module("rlprobe.doctor"), import_module("rlprobe.schemas")
    steps = [
        schemas.StepRecord(
            step=row["step"],
            clip_fraction=row["clip_low"] + row["clip_high"] if "clip_low" in row else None,
            **{theirs: row[ours] for ours, theirs in RLPROBE_NAMES.items() if ours in row},
        )
        for row in run.history
    ]
    manifest = schemas.RunManifest(run_id=run.name, created_at="", algorithm=_algorithm(run))
    theirs, doctor.Detector.min_steps = doctor.Detector.min_steps, shortest
    try:
        findings = doctor.diagnose_view(doctor.RunView(manifest, steps))
    finally:
        doctor.Detector.min_steps = theirs
    return [finding.signature_id for finding in findings if finding.severity != "info"]


def rl_doctor(run: Evidence) -> list[str]:
    """The checks that rl-doctor warns of in a run, worst first."""
    doctor = import_module("rl_doctor")
    rows = [
        {theirs: row[ours] for ours, theirs in TRL_NAMES.items() if ours in row}
        | (
            {"clip_ratio/region_mean": row["clip_low"] + row["clip_high"]}
            if "clip_low" in row
            else {}
        )
        for row in run.history
    ]
    facts = run.witnesses[0].facts
    config = {"algorithm": _algorithm(run), "num_generations": facts["group_size"]}
    config |= {"beta": facts["penalty"]["beta"], "max_new_tokens": facts["max_new_tokens"]}
    found = doctor.diagnose(doctor.run_from_records(rows, config=config, name=run.name)).problems
    return [finding.detector for finding in found if finding.severity >= doctor.Severity.WARNING]


def _algorithm(run: Evidence) -> str:
    return run.witnesses[0].facts["algorithm"]


@dataclass(frozen=True)
class Peer:
    """A doctor.

    Attributes:
        package: what pip calls it.
        asked: what it says of a run, first what it says first.
        words: what it may mean.
    """

    package: str
    asked: Callable[[Evidence], list[str]]
    words: Words


PEERS: Mapping[str, Peer] = {
    "rlprobe": Peer("rlprobe", rlprobe, RLPROBE),
    "rlprobe, floor of 20 steps": Peer("rlprobe", lambda run: rlprobe(run, shortest=20), RLPROBE),
    "rl-doctor": Peer("rldoctor", rl_doctor, RL_DOCTOR),
}


def judge(folder: Path, peers: Sequence[str]) -> list[dict[str, Any]]:
    """What each peer says of each recorded run, beside what the run is."""
    answers, results = records.read_json(folder / ANSWERS), []
    for name, answer in track(list(answers.items()), "diagnoses", total=len(answers)):
        run = evidence.read(folder / LOGS / f"{name}.zip")
        said = {peer: PEERS[peer].asked(run) for peer in peers}
        results.append({"run": name, "cause": answer["cause"], "said": said})
    return results


def score(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often the first word may mean the planted cause, or any word; and how many are accused.

    `nameable` counts the broken runs for whose cause the peer has a word at all.
    """
    broken = [{**one, "cause": current(one["cause"])} for one in results if one["cause"]]
    sound = [one for one in results if not one["cause"]]

    def of(peer: str) -> dict[str, Any]:
        words = PEERS[peer].words
        meant = [[one["cause"] in words[word] for word in one["said"][peer]] for one in broken]
        known = frozenset().union(*words.values())
        return {
            "named": share(sum(hits[:1] == [True] for hits in meant), len(broken)),
            "named_anywhere": share(sum(map(any, meant)), len(broken)),
            "accused": share(sum(bool(one["said"][peer]) for one in sound), len(sound)),
            "nameable": sum(one["cause"] in known for one in broken),
        }

    return {peer: of(peer) for peer in results[0]["said"]}


def installed() -> list[str]:
    """The peers that are here; says which are not."""
    here = []
    for name, peer in PEERS.items():
        try:
            metadata.version(peer.package)
            here.append(name)
        except metadata.PackageNotFoundError:
            print(f"{name} is left out: {peer.package} is not installed")
    return here


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Published doctors on the benchmark.")
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    if not (peers := installed()):
        return
    began, environment = perf_counter(), records.environment(1)
    results = judge(given.benchmark, peers)
    found = {
        peer: {"version": metadata.version(PEERS[peer].package), **one}
        for peer, one in score(results).items()
    }
    given.out.mkdir(parents=True, exist_ok=True)
    records.write_results(given.out, results)
    records.write_json(given.out / SCORE, found)
    seed = records.read_json(given.benchmark / records.ENVIRONMENT)["first_seed"]
    environment |= {"first_seed": seed, "seconds": round(perf_counter() - began, 1)}
    records.write_json(given.out / records.ENVIRONMENT, environment)
    print_score({f"{peer} {one['version']}": one for peer, one in found.items()})


if __name__ == "__main__":
    main()
