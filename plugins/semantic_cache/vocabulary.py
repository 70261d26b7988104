"""English words that decide whether two questions can have one answer. Other languages are only ever held to more.

What is not here has to stand in both questions as it is, so that a word that is missing costs a hit and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHORTEST: Final = 4


def stem(word: str) -> str:
    """A word without the ending that grammar gives it; crude, and the same for each of its forms that matter here."""
    word = word.removesuffix("'s").removesuffix("'")
    if len(word) < _SHORTEST:
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ly") and len(word) > _SHORTEST + 1:
        word = word[:-2]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            word = word[: -len(ending)]
            return word[:-1] if word[-1:] == word[-2:-1] and word[-1] not in "lsz" else word
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST + 1 else word


def _words(lines: str) -> frozenset[str]:
    return frozenset(lines.split())


def _each(**lines: str) -> Mapping[str, str]:
    """The stem of every word of every line, and the name that they all go by."""
    return {stem(word): name for name, line in lines.items() for word in line.split()}


FRAMING: Final = _words(
    """
    a about again ask between calculate compute convert all also am an and any anybody anyone are as at available be
    been being best can could describe did do does doing done explain explanation for from get gets getting give go
    going got had has have having hello help hey hi how i i'd i'm i've if in into is it its it's just kindly know
    let let's like may me mean meaning might must my name necessary need needed of on one or our out please per
    possible procedure quick question recipe regarding shall should show so some somebody someone somehow step steps
    such summarise summarize summary tell than thank thanks that that's the their them then there there's these they
    thing this those through to up us use used using want versus vs was way we well were what what's when when's
    where where's which who who's whom why will with work works would you your
    """
)
"""Words around what is asked, with which and without which it is the same question."""

SAME: Final = _each(
    cancel="cancel cancell cancellation end terminate",
    delete="delete deletion remove removal erase",
    change="change update modify alter",
    find="find see locate view check",
    connect="connect connection",
    contact="contact reach",
    difference="difference differ different",
    shipping="shipping shipment deliver delivery",
    enable="enable activate turn switch",
    create="create make new",
    buy="buy purchase order",
    cost="cost price",
    include="include contain",
    allow="allow permit permission",
    large="large big size",
    tall="tall height high",
    far="far distance away",
    fast="fast speed quick",
    old="old age",
    near="near nearest close closest",
    author="author written wrote",
    expiry="expire expiry expiration",
    people="people population person",
    apply="apply request",
    phone="phone telephone",
    picture="picture image photo",
    error="error code status",
    begin="begin start",
    document="document doc",
    lawyer="lawyer attorney",
    car="car automobile",
    doctor="doctor physician",
)
"""Words that stand for one another, by the name that they go by here."""

UNITS: Final = _each(
    km="km kilometer kilometre",
    m="meter metre",
    cm="cm centimeter centimetre",
    mm="mm millimeter millimetre",
    mi="mile mi",
    ft="foot feet ft",
    inch="inch",
    yard="yard",
    kg="kg kilogram kilo",
    g="gram gramme g",
    mg="mg milligram",
    mcg="mcg microgram µg",
    lb="lb lbs",
    oz="ounce oz",
    ton="ton tonne",
    stone="stone",
    litre="liter litre",
    ml="ml milliliter millilitre",
    gallon="gallon",
    pint="pint",
    cup="cup",
    tablespoon="tablespoon tbsp",
    teaspoon="teaspoon tsp",
    celsius="celsius centigrade °c",
    fahrenheit="fahrenheit °f",
    kelvin="kelvin",
    second="second sec",
    minute="minute min",
    hour="hour hourly",
    day="day daily",
    week="week weekly",
    month="month monthly",
    year="year yearly annual annually",
    decade="decade",
    century="century",
    percent="percent % percentage",
    dollar="dollar usd $",
    euro="euro eur €",
    pound="pound gbp £",
    yen="yen jpy ¥",
    byte="byte",
    bit="bit",
    kb="kb kilobyte",
    mb="mb megabyte",
    gb="gb gigabyte",
    tb="tb terabyte",
    acre="acre",
    hectare="hectare",
    volt="volt v",
    ampere="ampere amp",
    watt="watt",
    kwh="kwh",
    mph="mph",
    kmh="km/h kmh kph",
)

DATES: Final = _each(
    monday="monday mon",
    tuesday="tuesday tue",
    wednesday="wednesday wed",
    thursday="thursday thu",
    friday="friday fri",
    saturday="saturday sat",
    sunday="sunday sun",
    january="january jan",
    february="february feb",
    march="march",
    april="april apr",
    june="june jun",
    july="july jul",
    august="august aug",
    september="september sep sept",
    october="october oct",
    november="november nov",
    december="december dec",
    today="today now currently",
    tonight="tonight",
    tomorrow="tomorrow",
    yesterday="yesterday",
    last="last previous",
    next="next upcoming",
    am="am",
    pm="pm",
    morning="morning",
    noon="noon midday",
    afternoon="afternoon",
    evening="evening",
    night="night midnight",
    weekend="weekend",
    spring="spring",
    summer="summer",
    autumn="autumn",
    winter="winter",
    christmas="christmas xmas",
    easter="easter",
)

NEGATIONS: Final = _words(
    """
    not no never without none nobody nothing neither nor cannot except excluding exclude excludes fail failed fails
    unable lack lacks lacking
    """
)

OPPOSITES: Final = _each(
    off="off disable deactivate",
    down="down decrease reduce lower descending fall decline descend",
    up="increase raise ascending rise ascend",
    least="min minimum minimal lowest smallest least shortest youngest cheapest fewest fewer less cheap",
    most="max maximum maximal highest largest biggest most longest oldest expensive more",
    before="before prior",
    after="after afterwards",
    first="first",
    final="final",
    bad="disadvantage con drawback downside worst worse bad",
    good="advantage pro benefit upside better good",
    undo="undo revert uninstall unlock unsubscribe unfollow decrypt decompress unzip unmute unblock unpublish unassign",
    worth="invalid illegal unencrypted unsafe impossible incorrect untrue false forbidden prohibited",
    exports="export outgoing outbound download",
    imports="import incoming inbound upload",
    lesser="downgrade",
    greater="upgrade",
    left="left",
    right="right",
    sell="sell",
    close="shut",
    hide="hide",
    reject="reject refuse deny revoke",
    lose="lose loss",
    gain="gain",
    hot="hot warm",
    cold="cold cool",
    pull="pull",
    push="push",
    out="out",
)
"""Words with a contrary; a question that has one of them has nothing to do with one that has not."""

ASKED: Final = _each(
    when="when when's",
    where="where where's",
    who="who who's whom whose",
    why="why",
)
MANNER: Final = _words("many much long often far old tall high fast large big soon early late wide deep")
"""What a question may ask behind `how` that is no way of doing something."""

_COUNTED: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
WORDED: Final[Mapping[str, str]] = {
    word: str(number)
    for number, word in enumerate(_COUNTED.split())
    if word != "one"  # which stands for anybody more often than for a number
} | {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
    "thousand": "1000",
    "million": "1000000",
    "billion": "1000000000",
    "dozen": "12",
    "twice": "2",
    "double": "2",
    "triple": "3",
    "third": "3rd",
    "fourth": "4th",
    "fifth": "5th",
    "sixth": "6th",
    "seventh": "7th",
    "eighth": "8th",
    "ninth": "9th",
    "tenth": "10th",
    "half": "0.5",
    "quarter": "0.25",
}
_ROMANS: Final = "II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI"
ROMAN: Final[Mapping[str, str]] = {
    roman: str(number)
    for number, roman in enumerate(_ROMANS.split(), start=2)
    if len(roman) > 1  # a single letter is a name as often
}

BETWEEN: Final = _words("to from into than after before by in for over at on of")
"""Words that say which of two things is which."""
