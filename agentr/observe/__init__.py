"""Progress, reports and comparisons, read from run directories."""
