"""Growing many trees at a time: policy and environment in, trees out."""
