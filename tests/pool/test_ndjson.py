"""Lines of JSON, both ways."""

from __future__ import annotations

import pytest

from lake_core.pool import types
from lake_core.pool.errors import InvalidJson
from lake_core.pool.ndjson import format_json, parse_json, read_ndjson
from lake_core.pool.value import Value
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_value
from tests.pool.cases import stored_branches


def test_every_value_of_every_lake_is_written_as_zed_writes_it() -> None:
    # Version 1.6 writes maps and float32 in other ways.
    count = 0
    for branch in stored_branches():
        if branch.ndjson and "v1.6" not in branch.name:
            printed = {format_json(value) for data in branch.objects for value in read_values(data)}
            assert set(branch.ndjson) <= printed, branch.name
            count += len(branch.ndjson)
    assert count > 1000


@pytest.mark.parametrize(
    ("zson", "json"),
    [
        ("1.", "1"),
        ("-0.5", "-0.5"),
        ("1e+300", "1e+300"),
        ("1e21", "1e+21"),
        ("123456789012345680000.", "123456789012345680000"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("0.1(float32)", "0.10000000149011612"),
        ("18446744073709551615", "18446744073709551615"),
        ("1h", '"1h"'),
        ("2024-01-01T00:00:00Z", '"2024-01-01T00:00:00Z"'),
        ("0x00ff", '"0x00ff"'),
        ("::1", '"::1"'),
        ("<{a:int64}>", '"<{a:int64}>"'),
        (r'"\u2028\u0001\b<>&☃"', r'"\u2028\u0001\b<>&☃"'),
        ("|[2,1]|", "[1,2]"),
        ('|{"a":1}|', '{"a":1}'),
        ("|{1:2}|", '{"1":2}'),
        ("|{{a:1}:2}|", '{"{a:1}":2}'),
        ("%up(enum(up))", '"up"'),
        ("error({a:1})", '{"error":{"a":1}}'),
        ("80(port=uint16)", "80"),
        ('[1,"a",null]', '[1,"a",null]'),
        ("null((int64,string))", "null"),
        ("{}", "{}"),
    ],
)
def test_values_of_all_kinds_have_a_form_in_json(zson: str, json: str) -> None:
    assert format_json(parse_value(zson)) == json


@pytest.mark.parametrize(
    ("json", "zson"),
    [
        ('{"a":1,"b":[1,2.5,"x",null],"c":{"d":true}}', '{a:1,b:[1,2.5,"x",null],c:{d:true}}'),
        ("9223372036854775808", "9.223372036854776e+18"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("[]", "[]"),
        ("[null]", "[null]"),
        ('{"a":1,"b":2,"a":3}', "{a:3,b:2}"),
        (r'"\ud83d\ude00"', '"😀"'),
        ("1e2", "100."),
    ],
)
def test_json_becomes_values(json: str, zson: str) -> None:
    assert format_value(parse_json(json)) == zson


def test_lines_are_read_and_written_one_by_one() -> None:
    values = [Value.of(types.INT64, 1), Value.of(types.STRING, "a\nb")]
    lines = [format_json(value) for value in values]
    assert lines == ["1", '"a\\nb"']
    assert list(read_ndjson([*(f"{line}\n" for line in lines), " \n"])) == values


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "-Infinity", '"\\ud800"', "1e999", "[" * 5000, "[" * 200 + "]" * 200, "nul"]
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidJson):
        parse_json(text)


def test_the_line_that_is_not_json_is_named() -> None:
    with pytest.raises(InvalidJson, match="line 2"):
        list(read_ndjson(["1\n", "{\n"]))


@pytest.mark.parametrize("zson", ["NaN", "{a:+Inf}"])
def test_numbers_that_json_does_not_have_are_refused(zson: str) -> None:
    with pytest.raises(InvalidJson, match="write ZSON"):
        format_json(parse_value(zson))
