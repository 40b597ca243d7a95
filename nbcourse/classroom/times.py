"""Times of submission as a class list has them: ISO 8601, or as Moodle writes them.

Moodle writes a day and a time in the language of whoever downloads (`strftimedaydatetime` of its
language packs), with twelve or twenty-four hours: "Sunday, 14 March 2027, 11:58 PM", "Sunday,
March 14, 2027, 11:58 PM", "Sonntag, 14. März 2027, 23:58". What is the same in all of them is read:
a year of four digits, a month by its name, a day, hours and minutes.
"""

import re
import unicodedata
from datetime import datetime

NAMES = """
january february march april may june july august september october november december
januar februar märz april mai juni juli august september oktober november dezember
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
gener febrer març abril maig juny juliol agost setembre octubre novembre desembre
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
januari februari maart april mei juni juli augustus september oktober november december
januari februari mars april maj juni juli augusti september oktober november december
januar februar marts april maj juni juli august september oktober november december
januar februar mars april mai juni juli august september oktober november desember
tammikuu helmikuu maaliskuu huhtikuu toukokuu kesäkuu heinäkuu elokuu syyskuu lokakuu marraskuu
joulukuu
stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
ledna února března dubna května června července srpna září října listopadu prosince
ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık
января февраля марта апреля мая июня июля августа сентября октября ноября декабря
січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня
"""
MONTHS = NAMES.split()  # by twelves, in one language after the other
CLOCK = re.compile(
    r"(\d{1,2})[:.h](\d{2})(?:[:.](\d{2}))?\s*(?:([ap])\.?\s?m\b\.?)?", re.IGNORECASE
)
EASTERN = re.compile(r"(\d{4})\s*[年년]\s*(\d{1,2})\s*[月월]\s*(\d{1,2})\s*[日일]")


def read(text: str) -> datetime | None:
    """The time that a text says; None if it says none, or more than one could be meant."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    if (clock := CLOCK.search(text)) is None:
        return None
    hour, minute, second = (int(part or 0) for part in clock.groups()[:3])
    if clock[4]:
        hour = hour % 12 + 12 * (clock[4].lower() == "p")
    day = _day(text[: clock.start()] + " " + text[clock.end() :])
    try:
        return None if day is None else datetime(*day, hour, minute, second)
    except ValueError:
        return None


def _day(text: str) -> tuple[int, int, int] | None:
    """Year, month and day."""
    if eastern := EASTERN.search(text):
        year, month, day = (int(part) for part in eastern.groups())
        return year, month, day
    words = re.findall(r"[^\W\d_]+", unicodedata.normalize("NFC", text).casefold())
    forms = [form for word in words for form in (word, word.removesuffix("ta"))]  # as in Finnish
    months = {MONTHS.index(form) % 12 + 1 for form in forms if form in MONTHS}
    years, days = re.findall(r"\b\d{4}\b", text), re.findall(r"\b\d{1,2}\b", text)
    if len(months) == len(years) == len(days) == 1:
        return int(years[0]), months.pop(), int(days[0])
    return None
