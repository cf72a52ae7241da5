"""Starting experiments: one run, several side by side, and what a run would cost."""
