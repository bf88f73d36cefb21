"""Answers for the nine tasks of `stcon bench throughput`, as many as wanted, all different, each valid by jsonschema.

A model with random weights writes nothing, so what it writes is given to it (`gpu_batch_models`). Names, places,
numbers and words differ from answer to answer, so that a stream's text is as new to the constraints as another user's;
only what a schema fixes (keys, members of an enumeration) comes again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

NAMES = [
    "Maria",
    "Gonzalez",
    "Jean-Luc",
    "Moreau",
    "Ingrid",
    "Solberg",
    "Tomas",
    "Lindqvist",
    "Amara",
    "Okafor",
    "Wei",
    "Zhang",
    "Priya",
    "Raman",
    "Oluwaseun",
    "Adeyemi",
    "Freya",
    "Halvorsen",
    "Mateusz",
    "Kowalski",
    "Aiko",
    "Tanaka",
    "Dmitri",
    "Volkov",
    "Leila",
    "Haddad",
    "Santiago",
    "Herrera",
    "Niamh",
    "Gallagher",
]
CITIES = [
    "Lisbon",
    "Gothenburg",
    "Paris",
    "Nairobi",
    "Kyoto",
    "Montevideo",
    "Tbilisi",
    "Halifax",
    "Wellington",
    "Ljubljana",
    "Accra",
    "Cusco",
]
COUNTRIES = [
    "Portugal",
    "Sweden",
    "France",
    "Kenya",
    "Japan",
    "Uruguay",
    "Georgia",
    "Canada",
    "Slovenia",
    "Ghana",
    "Peru",
    "Iceland",
]
NOUNS = [
    "tent",
    "lantern",
    "kettle",
    "compass",
    "blanket",
    "stove",
    "rope",
    "mirror",
    "clock",
    "teapot",
    "basket",
    "ladder",
    "pillow",
    "bottle",
    "saddle",
    "violin",
    "anchor",
    "engine",
    "carpet",
    "bridge",
    "orchard",
    "harbour",
    "glacier",
    "meadow",
    "granite",
    "copper",
    "velvet",
    "paper",
    "timber",
    "marble",
]
ADJECTIVES = [
    "quiet",
    "heavy",
    "northern",
    "folding",
    "amber",
    "broad",
    "patient",
    "hollow",
    "distant",
    "early",
    "rapid",
    "gentle",
    "sturdy",
    "woven",
    "bright",
    "narrow",
]
COMPACT = (",", ":")


def answer(task: int, number: int) -> str:
    """Answer `number` to task `task` (0 … 8), in the order of `stcon.bench.throughput.mixed_tasks`."""
    rng = random.Random(100_003 * task + number)
    found = _MAKERS[task](rng)
    return found if isinstance(found, str) else json.dumps(found, separators=COMPACT, ensure_ascii=False)


def _name(rng: random.Random) -> str:
    return f"{rng.choice(NAMES)} {rng.choice(NAMES)}"


def _thing(rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def _things(rng: random.Random, low: int, high: int) -> list[str]:
    return [_thing(rng) if rng.random() < 0.5 else rng.choice(NOUNS) for _ in range(rng.randint(low, high))]


def _email(rng: random.Random) -> str:
    return f"{rng.choice(NAMES).lower()}{rng.randint(1, 99)}@{rng.choice(NOUNS)}.example"


def _sentence(rng: random.Random, words: int) -> str:
    return " ".join([rng.choice(NAMES), "says the", *(rng.choice(ADJECTIVES + NOUNS) for _ in range(words))]) + "."


def _person(rng: random.Random) -> Any:
    status = rng.choice(("approved", "pending", "rejected"))
    return {
        "name": _name(rng),
        "age": rng.randint(18, 95),
        "email": _email(rng),
        "status": status,
        "tags": _things(rng, 2, 5),
    }


def _tool_call(rng: random.Random) -> Any:
    arguments = {
        "location": f"{rng.choice(CITIES)}, {rng.choice(COUNTRIES)}",
        "unit": rng.choice(("celsius", "fahrenheit")),
        "include_forecast": rng.random() < 0.5,
        "days": rng.randint(1, 14),
    }
    return {"function": rng.choice(("get_weather", "search_flights", "send_email")), "arguments": arguments}


def _product(rng: random.Random) -> Any:
    return {
        "name": f"The {_thing(rng).title()}",
        "price": round(rng.uniform(3, 900), 2),
        "currency": rng.choice(("EUR", "GBP", "USD")),
        "in_stock": rng.random() < 0.5,
        "categories": _things(rng, 3, 6),
        "dimensions": {f"{side}_cm": rng.randint(2, 200) for side in ("length", "width", "height")},
    }


def _event(rng: random.Random) -> Any:
    people = [{"name": _name(rng), "role": rng.choice(("organizer", "speaker"))} for _ in range(rng.randint(2, 4))]
    place = {"venue": f"{_thing(rng).title()} Hall", "city": rng.choice(CITIES), "country": rng.choice(COUNTRIES)}
    date = f"20{rng.randint(10, 40)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return {"title": f"{_thing(rng).title()} Forum", "date": date, "location": place, "attendees": people}


def _classification(rng: random.Random) -> Any:
    topics = ["design", "price", "quality", "shipping", "support"]
    return {
        "sentiment": rng.choice(("negative", "neutral", "positive")),
        "rating": rng.randint(1, 5),
        "topics": rng.sample(topics, rng.randint(1, 4)),
        "would_recommend": rng.random() < 0.5,
        "summary": _sentence(rng, 9)[:120],
    }


def _contact_card(rng: random.Random) -> Any:
    address = {
        "street": f"{rng.randint(1, 199)} {rng.choice(NAMES)} Street",
        "postal_code": f"{rng.randint(10000, 99999)}",
        "city": rng.choice(CITIES),
        "country": rng.choice(COUNTRIES),
    }
    return {
        "name": _name(rng),
        "job_title": f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} director",
        "company": f"{_thing(rng).title()} Studio",
        "email": _email(rng),
        "phone": f"+{rng.randint(30, 49)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}",
        "address": address,
    }


def _body(rng: random.Random, depth: int) -> Any:
    below = [_body(rng, depth - 1) for _ in range(rng.randint(1, 2))] if depth else []
    name = f"{rng.choice(NOUNS)} {rng.randint(1, 99)}"
    return {"name": name, "kind": rng.choice(("star", "planet", "moon")), "orbiters": below}


def _solar(rng: random.Random) -> Any:
    return _body(rng, 2)


def _date(rng: random.Random) -> str:
    day, month = rng.choice(("Mon", "Tue", "Wed", "Thu", "Fri")), rng.choice(("January", "March", "May", "June"))
    return f"{day}, {rng.randint(1, 28):02} {month} 20{rng.randint(20, 40)}, {rng.randint(8, 18):02}:00"


def _prose(rng: random.Random) -> str:
    return " ".join(_sentence(rng, rng.randint(6, 12)) for _ in range(4))


_MAKERS: tuple[Callable[[random.Random], Any], ...] = (
    _person,
    _tool_call,
    _product,
    _event,
    _classification,
    _contact_card,
    _solar,
    _date,
    _prose,
)
