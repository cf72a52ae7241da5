"""Telling experiment trackers what a run comes to: TensorBoard, MLflow, Weights & Biases, Trackio.

``points`` reads from the run directory what a run comes to, ``tracker`` is the seam, with a module for each tracker
beside it, ``feed`` is the process that logs to one of them, ``tracking`` is the driver's side.
"""
