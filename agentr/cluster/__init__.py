"""The Ray cluster: joining it, what runs where, whether it suffices, and what its failures mean.
Its nodes are seen from here alone."""
