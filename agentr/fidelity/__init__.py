"""Which equations and rules of the papers agentr follows to the digit: golden vectors, and what agentr makes of them.

``vectors/`` holds a file for each method. A rule there names its paper and equation, or "released code", inputs, and
what comes of them: worked out from the formula by hand or by plain arithmetic (``work``), never by agentr. ``checks/``
asks agentr's own code.
"""
