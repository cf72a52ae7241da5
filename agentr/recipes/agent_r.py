"""Agent-R (Yuan et al. 2025, arXiv 2501.11425): train on revisions of one's own search trees, round after round."""

from __future__ import annotations

from agentr.rounds.experiment import Experiment


def run(experiment: Experiment) -> None:
    """Warm start, then for each round: search, revise, build, fine-tune, evaluate. Ends with the control arm and the promotion."""
    config = experiment.config
    warm_start, demonstrations = experiment.warm_start()
    experiment.evaluate("rounds/00", warm_start)

    policy = warm_start
    for r in experiment.rounds():
        trees = experiment.collect(r, policy)
        revised = experiment.revise(r, policy, trees)
        dataset = experiment.build(r, revised, demonstrations)
        start = policy if config.trainer.continue_from == "previous" else warm_start
        policy = experiment.train(f"rounds/{r:02d}", dataset, start, experiment.train_config(r))
        experiment.evaluate(f"rounds/{r:02d}", policy)

    if config.run.control and config.run.rounds:
        experiment.control(warm_start, demonstrations)
    experiment.promote()
