"""What a run takes before it is started: bytes, seconds, device-hours, money.

``shape`` reads a model's ``config.json``, ``hardware`` knows devices, ``memory`` and ``speed`` are the formulas,
``evidence`` says how many turns and tokens there will be, ``forecast`` puts them together stage by stage, and
``propose`` looks for what fits and is fastest. docs/cost.md has the formulas in words.
"""
