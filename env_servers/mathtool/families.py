"""Families of generated problems, each in three levels.

A family is a function of a random generator and a level, 1 to 3. It gives a question, its answer, code that prints the
answer, and the thought that leads to the code.
"""

import itertools
import math
import operator
import random
from collections.abc import Callable
from fractions import Fraction

Made = tuple[str, int | Fraction, str, str]

NAMES = (
    "Ada",
    "Bela",
    "Chen",
    "Dora",
    "Emil",
    "Fatima",
    "Goran",
    "Hana",
    "Ivo",
    "Jana",
    "Kofi",
    "Lena",
    "Mika",
    "Nadia",
    "Omar",
    "Petra",
)
GOODS = (
    "pens",
    "mugs",
    "candles",
    "apples",
    "stickers",
    "lamps",
    "notebooks",
    "tiles",
    "batteries",
    "postcards",
    "ropes",
    "bulbs",
)


def arithmetic(rng: random.Random, level: int) -> Made:
    """An expression of 3, 4 or 5 numbers, larger ones at higher levels."""
    operators = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    value = rng.randint(11, 99)
    text = str(value)
    for _ in range(level + 1):
        sign, number = rng.choice("+-*"), rng.randint(3, 10 ** (level + 1))
        inner = text if text.isdigit() else f"({text})"
        if rng.random() < 0.6:
            value, text = operators[sign](value, number), f"{inner} {sign} {number}"
        else:
            value, text = operators[sign](number, value), f"{number} {sign} {inner}"
    return f"Compute {text}.", value, f"print({text})", "I let Python compute this, so that no digit goes wrong."


def shopping(rng: random.Random, level: int) -> Made:
    """Unit prices: packs; packs and single pieces with change; the same with a discount."""
    name, (first, second) = rng.choice(NAMES), rng.sample(GOODS, 2)
    price, pack, packs = rng.randint(35, 320), rng.choice((4, 5, 6, 8, 12)), rng.randint(2, 15)
    single, count = rng.randint(45, 650), rng.randint(3, 20)
    question = f"A pack holds {pack} {first}, and each of the {first} costs {price} cents. {name} buys {packs} packs"
    code, total = f"total = {packs} * {pack} * {price}\n", packs * pack * price
    if level == 1:
        return (
            f"{question}. How many cents is that?",
            total,
            f"{code}print(total)",
            "Packs times pieces times the price of a piece.",
        )
    question += f" and {count} {second} at {single} cents each"
    code, total = f"{code}total += {count} * {single}\n", total + count * single
    if level == 2:
        paid = (total // 1000 + 1) * 1000
        question += f", and pays with {paid // 100} dollars. How many cents of change are due?"
        return (
            question,
            paid - total,
            f"{code}print({paid} - total)",
            f"{paid // 100} dollars are {paid} cents; I take the bill off.",
        )
    percent = rng.choice((5, 10, 15, 20, 25, 30, 40))
    question += (
        f". The shop takes {percent} % off the whole bill. How many cents are left to pay? Give an exact number."
    )
    code = f"from fractions import Fraction\n{code}print(total * Fraction({100 - percent}, 100))"
    return (
        question,
        total * Fraction(100 - percent, 100),
        code,
        f"What is left is {100 - percent} % of the bill. Fractions keep it exact.",
    )


def ratio(rng: random.Random, level: int) -> Made:
    """Sharing in a ratio: the larger share; the difference of two of three shares; the ratio after a change."""
    parts = rng.sample(range(2, 12), 3)
    unit = rng.randint(3, 60)
    first, second, third = rng.sample(NAMES, 3)
    if level == 1:
        a, b = sorted(parts[:2])
        question = (
            f"{first} and {second} share {(a + b) * unit} coins in the ratio {a}:{b}. How many coins does {second} get?"
        )
        return (
            question,
            b * unit,
            f"print({(a + b) * unit} * {b} // ({a} + {b}))",
            f"{second} gets {b} of {a} + {b} equal parts.",
        )
    a, b, c = parts
    total = (a + b + c) * unit
    shared = f"{first}, {second} and {third} share {total} coins in the ratio {a}:{b}:{c}."
    code = f"unit = {total} // ({a} + {b} + {c})\n"
    if level == 2:
        question = (
            f"{shared} How many more coins than the one with the smallest share does the one with the largest share "
            "get?"
        )
        return (
            question,
            (max(parts) - min(parts)) * unit,
            f"{code}print(({max(parts)} - {min(parts)}) * unit)",
            "I find one part, then the gap.",
        )
    given = rng.randint(1, a * unit - 1)
    question = (
        f"{shared} Then {first} gives {given} coins to {third}. What is the ratio of {first}'s coins to {third}'s now, "
        "as a fraction?"
    )
    code = f"from fractions import Fraction\n{code}print(Fraction({a} * unit - {given}, {c} * unit + {given}))"
    return (
        question,
        Fraction(a * unit - given, c * unit + given),
        code,
        "I find one part, move the coins, and divide; a fraction reduces itself.",
    )


def equation(rng: random.Random, level: int) -> Made:
    """Linear equations in 1, 2 or 3 unknowns; with several, their product is asked for."""
    names = "xyz"[:level]
    while True:
        values = [Fraction(rng.randint(-12, 12), rng.choice((1, 1, 2, 3))) for _ in names]
        rows = [[rng.choice((-1, 1)) * rng.randint(1, 9) for _ in names] for _ in names]
        if _determinant(rows) and all(values):
            break
    scale = math.lcm(*(value.denominator for value in values))
    rows = [[scale * n for n in row] for row in rows]
    lines, terms = [], []
    for row in rows:
        right = sum(n * value for n, value in zip(row, values, strict=True))
        left = "".join(f" {'-' if n < 0 else '+'} {abs(n)}{name}" for n, name in zip(row, names, strict=True))
        left = left.removeprefix(" + ").replace(" - ", "-", 1) if row[0] < 0 else left.removeprefix(" + ")
        lines.append(f"{left} = {right}")
        terms.append(
            "sympy.Eq(" + " + ".join(f"{n}*{name}" for n, name in zip(row, names, strict=True)) + f", {right})"
        )
    asked = "x" if level == 1 else f"the product {' * '.join(names)}"
    code = f"import sympy\n{', '.join(names)} = sympy.symbols('{' '.join(names)}')\n"
    code += (
        f"found = sympy.solve([{', '.join(terms)}], [{', '.join(names)}])\n"
        f"print({' * '.join(f'found[{name}]' for name in names)})"
    )
    return (
        f"Solve: {'; '.join(lines)}. What is {asked}?",
        math.prod(values),
        code,
        "A linear system; sympy solves it exactly.",
    )


def _determinant(rows: list[list[int]]) -> int:
    total = 0
    for order in itertools.permutations(range(len(rows))):
        inversions = sum(a > b for a, b in itertools.combinations(order, 2))
        total += (-1) ** inversions * math.prod(row[i] for row, i in zip(rows, order, strict=True))
    return total


def remainder(rng: random.Random, level: int) -> Made:
    """Modular arithmetic: a power; two congruences; the last digits of a sum of powers."""
    if level == 1:
        base, power, modulus = rng.randint(3, 60), rng.randint(20, 400), rng.randint(7, 97)
        question = f"What is the remainder when {base}^{power} is divided by {modulus}?"
        return (
            question,
            pow(base, power, modulus),
            f"print(pow({base}, {power}, {modulus}))",
            "Python's pow takes a modulus.",
        )
    if level == 2:
        first, second = rng.sample((5, 7, 8, 9, 11, 13, 17, 19, 23), 2)
        a, b = rng.randrange(1, first), rng.randrange(1, second)
        answer = next(n for n in itertools.count(1) if n % first == a and n % second == b)
        question = (
            f"What is the smallest positive integer that leaves remainder {a} when divided by {first} and {b} when "
            f"divided by {second}?"
        )
        code = f"n = 1\nwhile n % {first} != {a} or n % {second} != {b}:\n    n += 1\nprint(n)"
        return question, answer, code, "The number is below the product of both, so I can try them all."
    last, power, digits = rng.randint(50, 900), rng.randint(3, 40), rng.choice((2, 3))
    question = f"What is the remainder when 1^{power} + 2^{power} + ... + {last}^{power} is divided by {10**digits}?"
    answer = sum(pow(n, power, 10**digits) for n in range(1, last + 1)) % 10**digits
    return (
        question,
        answer,
        f"print(sum(n**{power} for n in range(1, {last} + 1)) % {10**digits})",
        "Python's integers are exact, so I add them up.",
    )


def divisors(rng: random.Random, level: int) -> Made:
    """Number theory: how many divisors; their sum without the odd ones; numbers below a bound with few of them."""
    if level == 3:
        bound, count = rng.randint(200, 1000), rng.choice((3, 4, 5, 6))
        answer = sum(len(_divisors(n)) == count for n in range(1, bound))
        code = f"import sympy\nprint(sum(sympy.divisor_count(n) == {count} for n in range(1, {bound})))"
        return (
            f"How many positive integers below {bound} have exactly {count} positive divisors?",
            answer,
            code,
            "I count them one by one.",
        )
    number = math.prod(rng.choices((2, 2, 3, 3, 5, 7, 11, 13), k=rng.randint(3, 6)))
    if level == 1:
        code = f"print(sum({number} % d == 0 for d in range(1, {number} + 1)))"
        return f"How many positive divisors does {number} have?", len(_divisors(number)), code, "I try every candidate."
    number *= 2
    code = f"print(sum(d for d in range(2, {number} + 1, 2) if {number} % d == 0))"
    return (
        f"What is the sum of the even positive divisors of {number}?",
        sum(d for d in _divisors(number) if d % 2 == 0),
        code,
        "I try every even candidate.",
    )


def _divisors(number: int) -> set[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return {*small, *(number // d for d in small)}


def counting(rng: random.Random, level: int) -> Made:
    """Counting numbers: multiples of either of two; with a digit sum; pairs with a property."""
    a, b = rng.sample(range(3, 17), 2)
    if level == 1:
        bound = rng.randint(100, 2000)
        answer = sum(n % a == 0 or n % b == 0 for n in range(1, bound + 1))
        code = f"print(sum(n % {a} == 0 or n % {b} == 0 for n in range(1, {bound} + 1)))"
        return (
            f"How many of the integers from 1 to {bound} are divisible by {a} or by {b}?",
            answer,
            code,
            "I check each number for both.",
        )
    if level == 2:
        bound, total = rng.randint(1000, 9999), rng.randint(5, 25)
        answer = sum(sum(map(int, str(n))) == total for n in range(1, bound + 1))
        code = f"print(sum(sum(map(int, str(n))) == {total} for n in range(1, {bound} + 1)))"
        return (
            f"How many of the integers from 1 to {bound} have digits that add up to {total}?",
            answer,
            code,
            "I add the digits of each number.",
        )
    bound = rng.randint(20, 120)
    answer = sum((x * x + y * y) % a == 0 for x in range(1, bound + 1) for y in range(x + 1, bound + 1))
    code = f"r = range(1, {bound} + 1)\nprint(sum(x < y and (x * x + y * y) % {a} == 0 for x in r for y in r))"
    question = (
        f"How many pairs of integers x < y between 1 and {bound}, inclusive, are there such that x^2 + y^2 is "
        f"divisible by {a}?"
    )
    return question, answer, code, "There are few enough pairs to check them all."


def rates(rng: random.Random, level: int) -> Made:
    """Work and travel: two pipes; a third that drains; two travellers who start at different times."""
    a, b, c = rng.sample(range(2, 31), 3)
    pipes = f"One pipe fills a tank in {a} hours, another in {b} hours"
    rate = Fraction(1, a) + Fraction(1, b)
    code = f"from fractions import Fraction\nrate = Fraction(1, {a}) + Fraction(1, {b})\n"
    if level == 1:
        question = f"{pipes}. How many hours do they take together? Give an exact fraction."
        return question, 1 / rate, f"{code}print(1 / rate)", "Rates add up: tanks an hour."
    if level == 2:
        c = a + b + c  # slower than both, so that the tank fills
        question = (
            f"{pipes}, and a leak empties it in {c} hours. How many hours until the tank is full? Give an exact "
            "fraction."
        )
        return (
            question,
            1 / (rate - Fraction(1, c)),
            f"{code}print(1 / (rate - Fraction(1, {c})))",
            "The leak takes its own rate off the pipes'.",
        )
    slow, gain, head = rng.randint(3, 60), rng.randint(1, 20), rng.randint(5, 90)
    first, second = rng.sample(NAMES, 2)
    question = (
        f"{first} sets out at {slow} km an hour. {head} minutes later {second} follows on the same road at "
        f"{slow + gain} km an hour. After how many kilometres does {second} catch up? Give an exact fraction."
    )
    answer = Fraction(slow * head, 60) / gain * (slow + gain)
    code = f"from fractions import Fraction\nlead = Fraction({slow} * {head}, 60)\nprint(lead / {gain} * {slow + gain})"
    return (
        question,
        answer,
        code,
        f"The lead shrinks by {gain} km an hour; that time at {slow + gain} km an hour is the distance.",
    )


def sequence(rng: random.Random, level: int) -> Made:
    """Recurrences: linear; of two terms; with a modulus."""
    start, factor, step, term = rng.randint(1, 9), rng.randint(2, 5), rng.randint(-9, 9) or 4, rng.randint(6, 14)
    plus = f"{'+' if step > 0 else '-'} {abs(step)}"
    code = f"a = {start}\nfor _ in range({{}} - 1):\n    a = {{}}\nprint(a)"
    if level == 1:
        value = start
        for _ in range(term - 1):
            value = factor * value + step
        question = f"A sequence starts with a(1) = {start}, and a(n+1) = {factor} * a(n) {plus}. What is a({term})?"
        return question, value, code.format(term, f"{factor} * a {plus}"), "I apply the rule one step at a time."
    if level == 2:
        x, y = start, start + rng.randint(1, 9)
        code = f"a, b = {x}, {y}\nfor _ in range({term} - 1):\n    a, b = b, {factor} * a + b\nprint(a)"
        question = (
            f"A sequence starts with a(1) = {x} and a(2) = {y}, and a(n+2) = a(n+1) + {factor} * a(n). What is "
            f"a({term})?"
        )
        for _ in range(term - 1):
            x, y = y, factor * x + y
        return question, x, code, "I carry two terms along."
    modulus, term, value = rng.randint(50, 999), rng.randint(40, 400), start
    for _ in range(term - 1):
        value = (value * value + abs(step)) % modulus
    question = (
        f"A sequence starts with a(1) = {start}; a(n+1) is the remainder of a(n)^2 + {abs(step)} divided by {modulus}. "
        f"What is a({term})?"
    )
    return (
        question,
        value,
        code.format(term, f"(a * a + {abs(step)}) % {modulus}"),
        f"{term} steps are many by hand and few for a loop.",
    )


FAMILIES: dict[str, Callable[[random.Random, int], Made]] = {
    family.__name__: family
    for family in (arithmetic, shopping, ratio, equation, remainder, divisors, counting, rates, sequence)
}
