"""date, time, date-time (RFC 3339 §5.6) and duration (RFC 3339 appendix A)."""

from __future__ import annotations

from stcon.grammar.json_schema.format_grammars.language import Format

# Years divisible by four that are no century, and centuries divisible by 400.
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_MONTH_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:[0-9]{{4}}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"

_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_OFFSET = f"(?:[Zz]|[+-]{_HOUR_MINUTE})"
_TIME = f"{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}{_OFFSET}"
_TIME_OR_60 = f"{_HOUR_MINUTE}:(?:[0-5][0-9]|60){_FRACTION}{_OFFSET}"


def _leap_seconds(*, same_day: bool, next_day: bool, half_hours: bool) -> str:
    """Times with second 60 that are 23:59:60 in UTC.

    Args:
        same_day: those whose local day is the UTC day (offset Z, zero, or west of it).
        next_day: those whose local day is the one after (offset east of it).
        half_hours: with offsets of half hours, too; a state chain for each.
    """
    choices = []
    for hour in range(24):
        west = [f"-{23 - hour:02}"] if same_day else []
        whole_east = [rf"\+{hour + 1:02}"] if next_day and hour < 23 else []
        half_east = [rf"\+{hour:02}"] if next_day else []
        whole = [f"{sign}:00" for sign in west + whole_east]
        if same_day and hour == 23:
            whole += [r"\+00:00", "[Zz]"]
        half = [f"{sign}:30" for sign in west + half_east] if half_hours else []
        for minute, offsets in ((59, whole), (29, half)):
            if offsets:
                choices.append(f"{hour:02}:{minute}:60{_FRACTION}(?:{'|'.join(offsets)})")
    return f"(?:{'|'.join(choices)})"


_LEAP_SECOND = _leap_seconds(same_day=True, next_day=True, half_hours=True)
_ON_LAST_DAY = _leap_seconds(same_day=True, next_day=False, half_hours=False)
_ON_FIRST_DAY = _leap_seconds(same_day=False, next_day=True, half_hours=False)
_LEAP_DATE_TIME = f"[0-9]{{4}}-(?:06-30|12-31)[Tt]{_ON_LAST_DAY}|[0-9]{{4}}-(?:07-01|01-01)[Tt]{_ON_FIRST_DAY}"

_DAYS = "[0-9]+D"
_MONTHS = f"[0-9]+M(?:{_DAYS})?"
_YEARS = f"[0-9]+Y(?:{_MONTHS})?"
_SECONDS = "[0-9]+S"
_MINUTES = f"[0-9]+M(?:{_SECONDS})?"
_HOURS = f"[0-9]+H(?:{_MINUTES})?"
_TIME_PART = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DURATION = f"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_TIME_PART})?|{_TIME_PART}|[0-9]+W)"

FORMATS = (
    Format("date", "RFC 3339 §5.6 full-date, §5.7", _DATE),
    Format(
        "time",
        "RFC 3339 §5.6 full-time, §5.7",
        f"{_TIME}|{_LEAP_SECOND}",
        outer=_TIME_OR_60,
        departure="second 60 only with offsets of whole or half hours",
    ),
    Format(
        "date-time",
        "RFC 3339 §5.6 date-time, §5.7",
        f"{_DATE}[Tt]{_TIME}|{_LEAP_DATE_TIME}",
        outer=f"{_DATE}[Tt]{_TIME_OR_60}",
        departure="second 60 only at the end of June and December (UTC), with offsets of whole hours",
    ),
    Format("duration", "RFC 3339 appendix A", _DURATION),
)
