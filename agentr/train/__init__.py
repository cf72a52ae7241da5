"""Training with TRL on DeepSpeed in Ray Train: a dataset and a checkpoint in, a checkpoint out."""
