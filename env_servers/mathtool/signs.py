r"""From what people, Python, sympy and LaTeX write to numbers, names and signs of one kind."""

import re
import unicodedata

from env_servers.boxed import boxed
from env_servers.mathtool import wording


class Unreadable(ValueError):
    """Means nothing that the grammar knows."""


def _table(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


#: Signs and names of the grammar for commands of LaTeX, for unicode's signs, and for functions as LaTeX, Python and
#: sympy call them.
_COMMANDS = _table(
    r"""cdot * times * div / le <= leq <= leqslant <= ge >= geq >= geqslant >= lt < gt > ne != neq != approx = pm ± mp ∓
    cup ∪ vee ∪ lor ∪ cap ∩ wedge ∩ land ∩ in ∈ infty oo emptyset EmptySet varnothing EmptySet mid | vert | lvert |
    rvert | { { } } lbrace { rbrace } % % _ _ colon : prime ' circ ° degree ° varphi phi varepsilon epsilon lg log10
    dfrac frac tfrac frac cfrac frac dbinom binom tbinom binom \ \ """
)
_SIGNS = str.maketrans(
    _table("− - – - × * · * ⋅ * ∙ * ÷ / ∕ / ⁄ / º ° ∣ | ∧ ∩ ∨ ∪ ’ ' ′ ' ≈ = ⩽ ≤ ⩾ ≥")
    | dict(zip("π∞∅ℝ", (" pi ", " oo ", " EmptySet ", " Reals "), strict=True))
)
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda lamda mu nu xi rho sigma tau upsilon phi chi psi "
    "omega"
).split()
CONSTANTS = _table("pi pi e e E e i i I i oo oo inf oo infinity oo Reals Reals True True False False")
TRIGONOMETRIC = "sin cos tan sec csc cot sinh cosh tanh".split()
_SAME = (
    "exp floor re im log log2 log10 root sqrt cbrt factorial binomial gcd lcm max min abs ceil".split() + TRIGONOMETRIC
)
FUNCTIONS = {
    **{name: name for name in _SAME},
    **{before + name: "a" + name for name in TRIGONOMETRIC for before in ("a", "arc", "ar")},
    **dict.fromkeys(
        "Integer Float int float mpf mpc Decimal float64 int64 complex list tuple set array sorted".split(), "same"
    ),
    **_table(
        """ln log Abs abs fabs abs ceiling ceil comb binomial real_root root Max max Min min Rational / Fraction / Pow ^
        Eq = Ne != Lt < Le <= Gt > Ge >= Union ∪ Or ∪ And ∩ Intersection ∩ FiniteSet {} Tuple () Point () Point2D ()
        Point3D () Interval [] Intervalopen () IntervalLopen (] IntervalRopen [) Matrix matrix MutableDenseMatrix matrix
        conjugate conj"""
    ),
}
RELATIONS = _table("= = == = := = ∈ = < < ≤ <= <= <= > > ≥ >= >= >= ≠ != != !=")
CLOSING = _table("( )] [ )] { } | | lfloor rfloor lceil rceil")
MATRICES = "matrix pmatrix bmatrix Bmatrix smallmatrix".split()
_OTHERS = "frac binom begin end lfloor rfloor lceil rceil EmptySet angle triangle ell".split()
KNOWN = {*_GREEK, *map(str.title, _GREEK), *CONSTANTS, *FUNCTIONS, *_OTHERS, *MATRICES}
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+|\.(?![\d.]))?|\.\d+"
_TEN = r"\s*(?:\*|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))"
NUMBER = re.compile(rf"({_DIGITS})(?:[eE]([-+]?\d+)|{_TEN})?|(\d*)\.(\d*)\\overline\s*\{{(\d+)\}}")
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>\d*\.\d*\\overline\s*\{{\d+\}}|{NUMBER.pattern})|\\(?P<command>[A-Za-z]+|\S)|(?P<word>@?[A-Za-z]+\d*)|"
    r"(?P<sign>\*\*|[<>!:=]=|\S))"
)
_UPRIGHT = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mathit|mbox|operatorname|boldsymbol)\s*\{([^{}]*)\}"
)
_SPACING = re.compile(
    r"\\(?:left|right)\s*\.?(?![A-Za-z])|\\(?:[,;:! ]|q?quad(?![a-z])|thinspace|displaystyle|[bB]igg?[lr]?(?![a-z]))|~"
)
#: Rewritten in this order. An upright word gets a ``@``.
_REWRITTEN = [
    (r"(?<=\d)(?:\\!|\{,\}|,(?=\\!)|\\,(?=\d{3}))(?:\\!|\s)*(?=\d)", ","),
    (_UPRIGHT.pattern, lambda match: " " + re.sub("[A-Za-z]+", r"@\g<0>", match[1]) + " "),
    (_SPACING.pattern, " "),
    (r"\b(?:sympy|c?math|np|numpy|sp|mpmath|S)\.(?=[A-Za-z])|(?<=\bInterval)\.", ""),
    (r"\\mathbb\s*\{R\}", " Reals "),
    (r"\^\s*(?:\{\s*(\\circ|\\prime)\s*\}|(\\circ|\\prime|°))", r"\1\2"),
    (r"(?<![\w)])(['\"])([-+.\w/]+)\1|^\s*(['\"])(.*)\3\s*$", r"\2\4"),
    (r"(?<=[\])])\s*U\s*(?=[\[(])|(?<=\))\s*\|\s*(?=\()", "∪"),
    (r"(?<=\))\s*&\s*(?=\()", "∩"),
    (r"(?<=\d )m/s\b", "@m/@s"),
    (r"(?<=\d)j\b", "*I"),
    (r",?\s*@?\b(?:and|or)\b\s*", ", "),
]


def plain(text: str) -> str:
    r"""An answer without what only dresses it: ``\boxed{}``, marks of Markdown and of formulas, invisible signs, a full
    stop."""
    text = boxed(text) or text
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").replace("`", " ").strip()
    for mark in (r"\*\*\*", r"\*\*", r"\*", "__", "_"):
        text = re.sub(rf"(?<![^\s(]){mark}(?![\s*_])(.+?)(?<![\s*_]){mark}(?=[\s.,:;!?)]|\Z)", r"\1", text)
    text = re.sub(r"\\[\[\]()]|\$\$", " ", text)
    text = re.sub(r"(?<!\\)\$((?:[^$\\]|\\.)*)\$", r" \1 ", text)
    text = re.sub(r"\\?\$\s*([-+]?[\d.,]*\d)", r"\1 dollars ", text.strip())
    return re.sub(r"(?<![.\s\\])\s*[.,;]\Z", "", " ".join(text.split()))


def _simplified(text: str) -> str:
    """The same in fewer signs: unicode's as ASCII's where there are such, without LaTeX's spaces."""

    def spelled(match: re.Match) -> str:
        kind = {"<super>": "^{{{}}}", "<sub>": "_{{{}}}"}.get(
            unicodedata.decomposition(match[0][0]).split(" ")[0], " {} "
        )
        return kind.format(unicodedata.normalize("NFKC", match[0]).translate(_SIGNS))

    def greek(match: re.Match) -> str:
        name = unicodedata.name(match[0]).split()
        return f" {name[-1].title() if 'CAPITAL' in name else name[-1].lower()} "

    text = re.sub("[⁰¹²³⁴-⁹⁺⁻ⁿ]+|[₀-₉]+|[¼-¾⅐-⅞]", spelled, text).translate(_SIGNS)
    text = re.sub("[α-ρσ-ωΑ-Ω]", greek, unicodedata.normalize("NFKC", text).translate(_SIGNS))
    for pattern, by in _REWRITTEN:
        text = re.sub(pattern, by, text)
    return text


def tokens(text: str) -> list[str]:
    """Splits an answer into numbers, names and signs.
    Any other word of up to three letters is as many factors (``xy``)."""
    found: list[str] = []
    for match in _TOKEN.finditer(_simplified(text).rstrip()):
        command, word = match["command"], match["word"]
        if command and command not in _COMMANDS and command not in KNOWN:
            raise Unreadable(text)
        if word and not wording.known(word) and word.lstrip("@") not in KNOWN:
            if (power := re.fullmatch(r"(@?[A-Za-z]+)([23])", word)) and wording.is_unit(power[1]):  # cm2
                found += [power[1], "^", power[2]]
            elif re.fullmatch(r"@?[A-Za-z]\d*|[A-Za-z]{2,3}\d*", word):
                found += re.findall(r"[A-Za-z]\d*", word)
            else:
                raise Unreadable(text)
        else:
            token = match["number"] or (_COMMANDS.get(command, command) if command else word) or match["sign"]
            found.append(token if wording.known(token) else token.lstrip("@"))
    return found


def bare(text: str) -> str:
    """A text for comparison with another one: in small letters, without blanks and the marks of LaTeX."""
    return "".join(_SPACING.sub(" ", _UPRIGHT.sub(r"\1", text)).split()).casefold()
