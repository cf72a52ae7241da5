"""The primitive moves, numbered as minigrid numbers them."""

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
