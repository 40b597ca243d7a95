"""What the losses of these tests are made of, in plain torch."""

from functools import cache
from pathlib import Path

import torch

from nbcourse.examine import examine
from nbcourse.functional.advantages import leave_one_out

report_of = cache(examine)  # several tests look at one loss
# (the loss, kind, id, evidence): each finding of a report, as some loss of these tests hears it
SENTENCES = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("sentences.tsv").read_text("utf-8").splitlines()
]


def ratio_of(log_probs, old_log_probs):
    return (log_probs - old_log_probs.detach()).exp()


def clipped(ratio, advantages, low=0.8, high=1.2):
    return -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)


def token_mean(losses, mask):
    return losses.masked_fill(~mask, 0.0).sum() / mask.sum()


def mean_of_sums(losses, mask):
    return losses.masked_fill(~mask, 0.0).sum(dim=1).mean()


def mean_of_means(losses, mask):
    lengths = mask.sum(dim=1).clamp(min=1)
    return (losses.masked_fill(~mask, 0.0).sum(dim=1) / lengths).mean()


def safe(ratio_or_d, mask):
    return ratio_or_d.masked_fill(~mask, 0.0)


def advantages_of(rewards, group_size, mask):
    return leave_one_out(rewards, group_size=group_size)[:, None].expand(mask.shape)


def with_kl(log_probs, advantages, mask, kl):
    return mean_of_sums(-log_probs * advantages + 0.1 * kl, mask)


def k3(d):
    return torch.expm1(-d) + d


def centred(rewards, group_size):
    groups = rewards.view(-1, group_size)
    return groups - groups.mean(dim=1, keepdim=True)


def mistakes(report):
    return {finding.id for finding in report.findings if finding.kind == "mistake"}


def codes(report, kind):
    return {finding.id for finding in report.findings if finding.kind == kind}


def says_what_is_written(report):
    """Whether its sentences are those of the table, word by word and number by number."""
    expected = {row[1:] for row in SENTENCES if row[0] == report.name}
    return expected <= {(one.kind, one.id, one.evidence) for one in report.findings}
