# SPDX-License-Identifier: Apache-2.0
"""Times as integers: "int64(timestamp_us)", and what Python, numpy, pandas and Arrow call them.

    meaning                                            integer
    date (int32)                                       days since 1970
    timestamp_UNIT                                     units since 1970, on a clock without a zone
    timestamp_UNIT_utc                                 units since 1970 in UTC: an instant. The zone it was shown in is not kept
    time_UNIT                                          units since midnight
    duration_UNIT                                      units

A unit is s, ms, us or ns. Python's own times have microseconds; those of pandas and numpy name their unit. Conversions are exact, or a
ValueError. As text and in JSON, times are ISO 8601."""
from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

from .types import describe

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second
_NANOSECONDS = {"W": 604800 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9,
                **{unit: 10**9 // count for unit, count in UNITS.items()}}
_DAY, _EPOCH = 86400, datetime.datetime(1970, 1, 1)
_TIMES = (datetime.date, datetime.time, datetime.timedelta)  # a datetime is a date


def is_time(value: Any) -> bool:
    """Return True for a time of Python or pandas, and for times of numpy, alone or as an array."""
    return isinstance(value, _TIMES) or getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m")


def is_missing(value: Any) -> bool:
    """Return True for pandas' NaT, which calls itself a datetime."""
    return type(value).__name__ == "NaTType"


def type_of_dtype(dtype: str) -> str | None:
    """Return the type for a dtype of numpy ("datetime64[us]"); None if there is none."""
    found = re.fullmatch(r"(datetime|timedelta)64\[(s|ms|us|ns|D)\]", dtype)
    if found is None or found[0] == "timedelta64[D]":
        return None
    if found[2] == "D":
        return "int32(date)"
    return f"int64({'timestamp' if found[1] == 'datetime' else 'duration'}_{found[2]})"


def type_of(value: Any) -> str:
    """Return the type of a time of Python or pandas."""
    if isinstance(value, datetime.datetime):
        return f"int64(timestamp_{getattr(value, 'unit', 'us')}{'' if value.tzinfo is None else '_utc'})"
    if isinstance(value, datetime.timedelta):
        return f"int64(duration_{getattr(value, 'unit', 'us')})"
    return "int64(time_us)" if isinstance(value, datetime.time) else "int32(date)"


def type_of_list(values: Sequence[Any]) -> str | None:
    """Return the item type of a list of times; None if these are not of one type."""
    types = {type_of(one) for one in values if isinstance(one, _TIMES) and not is_missing(one)}
    return types.pop() if len(types) == 1 and all(isinstance(one, _TIMES) and not is_missing(one) for one in values) else None


def join(name: str, a: str | None, b: str | None) -> str | None:
    """Return the meaning of two columns that become one: the finer unit. ValueError if they mean something else."""
    if a == b:
        return a
    (what, unit, zone), (other, finer, other_zone) = _parts(a), _parts(b)
    if what != other or zone != other_zone or not unit:
        raise ValueError(f'column "{name}": {a or "plain numbers"} in one sample, {b or "plain numbers"} in another: no type holds both; '
                         "convert one of them in map=")
    return a if UNITS[unit] > UNITS[finer] else b


def _parts(meaning: str | None) -> tuple[str, str, bool]:
    what, _, unit = (meaning or "").removesuffix("_utc").partition("_")
    return what, unit, (meaning or "").endswith("_utc")


def numbers(name: str, type: str, value: Any) -> Any:
    """Return a time, an array of times or a list of times as an array of a column's integers.

    TypeError if the column holds none, or others; ValueError for NaT, and for a time that does not fit. Both name the column."""
    import numpy
    wanted = describe(type)
    array = value if hasattr(value, "dtype") else None
    own = (type_of_dtype(array.dtype.name) if array is not None else
           type_of_list(value) if isinstance(value, (list, tuple)) else type_of(value))
    if own is None:
        raise TypeError(f'column "{name}": {array.dtype.name if array is not None else "these times"} cannot be stored; give times of one '
                        "kind, in s, ms, us or ns")
    if wanted.meaning is None:
        raise TypeError(f'column "{name}" is {type}, and the value a time: the type that holds it is {own}; str holds it as text')
    if array is not None:
        missing = bool(numpy.isnat(array).any())
        made: Any = numpy.asarray(array).astype("int64")
    else:
        each = value if isinstance(value, (list, tuple)) else [value]
        missing = any(map(is_missing, each))
        made = None if missing else _whole(name, describe(own).meaning, wanted.meaning, each)
        made = made if made is None or isinstance(value, (list, tuple)) else made.reshape(())
    if missing:
        what = "an array with NaT items, missing times" if array is not None and array.shape else "NaT, a missing time"
        raise ValueError(f'column "{name}": {what}; give None for the whole value')
    return made.astype(wanted.item) if array is None else scaled(name, own, type, made)


def _whole(name: str, own: str | None, wanted: str | None, values: Sequence[Any]) -> Any:
    import numpy
    _check_same(name, own, wanted)
    unit = _parts(wanted)[1]
    found = []
    for value in values:
        number, rest = (_days(value), 0) if not unit else divmod(_nanoseconds(value) * UNITS[unit], 10**9)
        if rest or not -(2**63) <= number < 2**63:
            raise ValueError(f'column "{name}": {value} does not fit {wanted}')
        found.append(number)
    return numpy.array(found, "int64")


def _days(value: datetime.date) -> int:
    return value.toordinal() - _EPOCH.toordinal()


def _nanoseconds(value: Any) -> int:
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise ValueError("a time of day with a zone; give it without one, or as text")
        return int(((value.hour * 60 + value.minute) * 60 + value.second) * 10**9 + value.microsecond * 1000)
    if isinstance(value, datetime.datetime):
        value = value - (_EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=datetime.UTC))
    return int(((value.days * _DAY + value.seconds) * 10**6 + value.microseconds) * 1000 + getattr(value, "nanoseconds", 0))


def as_numpy(type: str, values: Any) -> Any:
    """Return integers of a type as times of numpy, which has none since midnight."""
    what, unit, _ = _parts(describe(type).meaning)
    if what == "date":
        return values.astype("datetime64[D]")
    return values.view(f"{'datetime' if what == 'timestamp' else 'timedelta'}64[{unit}]") if what in ("timestamp", "duration") else values


def _check_same(name: str, own: str | None, wanted: str | None) -> None:
    if own != wanted and join(name, own, wanted) is None:
        raise AssertionError("join returned nothing for two meanings")


def scaled(name: str, own: str, type: str, values: Any) -> Any:
    """Return integers of type `own` as those of a column's type, whose unit may be another. ValueError names one that does not fit."""
    have, wanted = describe(own).meaning, describe(type).meaning
    if have is None or wanted is None:
        raise ValueError(f'column "{name}" is {type}, and the values are {own}; give schema={{"{name}": "{own}"}}')
    _check_same(name, have, wanted)
    unit, other = _parts(have)[1], _parts(wanted)[1]
    if unit == other:
        return fitting(name, type, values)
    up, down = UNITS[other] // UNITS[unit], UNITS[unit] // UNITS[other]
    bad = values[(values > (2**63 - 1) // up) | (values < -(2**63) // up)] if up else values[values % down != 0]
    if bad.size:
        raise ValueError(f'column "{name}": {bad.flat[0]} {unit} does not fit {type}')
    return fitting(name, type, values * up if up else values // down)


def fitting(name: str, type: str, values: Any) -> Any:
    """Return int64 values as items of the type. ValueError names one that is beyond them: a date has 32 bits."""
    import numpy
    item = numpy.iinfo(describe(type).item)
    whole = numpy.asarray(values)
    bad = whole[(whole < item.min) | (whole > item.max)]
    if bad.size:
        raise ValueError(f'column "{name}": {bad.flat[0]} does not fit {type}')
    return whole.astype(item.dtype, copy=False)


def as_text(value: Any) -> Any:
    """Return times as ISO 8601: a str, or nested lists of str for an array. ValueError for NaT."""
    if is_missing(value):
        raise ValueError("NaT, a missing time; give None")
    if isinstance(value, datetime.timedelta):
        return _duration_text(_nanoseconds(value))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    import numpy
    if bool(numpy.isnat(value).any()):
        raise ValueError("NaT, a missing time; give None")
    if value.dtype.kind == "M":
        return numpy.datetime_as_string(value).tolist()
    unit, count = numpy.datetime_data(value.dtype)
    if unit not in _NANOSECONDS:
        raise ValueError(f"a duration in {unit}, which has no text of its own; convert it to seconds or nanoseconds")
    each = _NANOSECONDS[unit] * count  # in Python's integers: 64 bits end at 292 years of nanoseconds
    texts = numpy.vectorize(lambda number: _duration_text(int(number) * each), otypes=[object])
    return texts(numpy.asarray(value).astype("int64")).tolist()


def _duration_text(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(int(nanoseconds)), 10**9)
    return f"{'-' if nanoseconds < 0 else ''}PT{seconds}{f'.{rest:09}'.rstrip('0') if rest else ''}S"
