"""Checks dashboards against the models that Grafana publishes (grafana-foundation-sdk, generated from
Grafana's own schemas): every key exists there, and every value has the type or is one of the words.
Prints one line for each fault.
"""
import enum
import importlib
import json
import re
import sys
import types
import typing

from grafana_foundation_sdk.models import dashboard, prometheus

# Keys that Python cannot have as names.
RESERVED = {"id": "id_val", "from": "from_val", "type": "type_val", "format": "format_val", "range": "range_val",
            "hide": "hide", "max": "max_val", "min": "min_val", "filter": "filter_val"}


def snake(key):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()


def model_of(panel_type, name):
    module = importlib.import_module("grafana_foundation_sdk.models." + panel_type.replace("-", ""))
    return getattr(module, name, None)


def check(value, kind, place):
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (object, typing.Any) or value is None and type(None) in arguments:
        return []
    if origin in (typing.Union, types.UnionType):
        faults = [check(value, one, place) for one in arguments if one is not type(None)]
        return min(faults, key=len)
    if origin is typing.Literal:
        return [] if value in arguments else [f"{place}: {value!r} is none of {arguments}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{place}: {value!r} is no list"]
        return [fault for n, one in enumerate(value) for fault in check(one, arguments[0], f"{place}[{n}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{place}: {value!r} is no object"]
        return [fault for key, one in value.items() for fault in check(one, arguments[1], f"{place}.{key}")]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        words = [one.value for one in kind]
        return [] if value in words else [f"{place}: {value!r} is none of {words}"]
    if kind is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return [] if is_number else [f"{place}: {value!r} is no number"]
    if kind in (int, str, bool):
        return [] if type(value) is kind else [f"{place}: {value!r} is no {kind.__name__}"]
    return check_model(value, kind, place)


def check_model(value, model, place):
    if model.__name__ == "Dataquery":
        model = prometheus.Dataquery
    if not isinstance(value, dict):
        return [f"{place}: {value!r} is no object"]
    hints = {}
    for base in reversed(model.__mro__):
        hints |= typing.get_type_hints(base, vars(sys.modules[base.__module__])) if base is not object else {}
    faults = []
    for key, one in value.items():
        names = [snake(key), RESERVED.get(key), snake(key) + "_val"]
        name = next((name for name in names if name in hints), None)
        if name is None:
            faults.append(f"{place}.{key}: {model.__name__} has no such key")
            continue
        kind = hints[name]
        if model is dashboard.Panel and key == "options":
            kind = model_of(value["type"], "Options") or kind
        faults += check(one, kind, f"{place}.{key}")
    return faults


for file in sys.argv[1:]:
    with open(file) as opened:
        for fault in check_model(json.load(opened), dashboard.Dashboard, file):
            print(fault)
