"""The typed configuration: keys, ranges, rules, reading."""
