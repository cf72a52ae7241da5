"""ALFRED's household tasks: what the environments ``alfworld`` and ``household`` share.

The six task types, knowledge of where things usually lie, the expert that plays by the texts alone, and AgentGym's
routes.
"""
