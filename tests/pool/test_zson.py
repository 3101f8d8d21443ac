"""ZSON, both ways."""

from __future__ import annotations

from itertools import islice

import pytest

from lake_core.pool import types
from lake_core.pool.errors import InvalidZson
from lake_core.pool.types import ArrayType, EnumType, MapType, NamedType, SetType, UnionType, record
from lake_core.pool.value import Tagged, Value
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_type, parse_value, parse_values
from lake_core.pool.zson.type_text import format_type
from tests.pool.cases import stored_branches, zng_files
from tests.skip_rule import CASES, NO_CASES

LINES = [
    "null",
    "null(int64)",
    "1",
    "-9223372036854775808",
    "18446744073709551615(uint64)",
    "7(uint8)",
    "1.",
    "1.5",
    "-0.1",
    "1e+300",
    "5e-324",
    "1.2345675e+06",
    "123456.5",
    "0.00012",
    "1.2e-05",
    "0.1(float32)",
    "3.4028235e+38(float32)",
    "1.5(float16)",
    "+Inf",
    "-Inf",
    "NaN",
    "0s",
    "1y2d3h4m5.006s",
    "-1.5ms",
    "1us",
    "999ns",
    "-292y171d23h47m16.854775808s",
    "1970-01-01T00:00:00Z",
    "1677-09-21T00:12:43.145224192Z",
    "2262-04-11T23:47:16.854775807Z",
    "0x",
    "0x00ff",
    '""',
    r'"a\"b\\\n\u0001☃"',
    "10.0.0.1",
    "::",
    "2001:db8::1",
    "::ffff:1.2.3.4",
    "10.0.0.0/8",
    "2001:db8::/32",
    "{}",
    '{a:1,"a b":2,_c$1:3}',
    "{a:null,b:null(string)}",
    "[]",
    "[null,null]",
    "[1,null(int64),3]",
    "[](=empty)",
    "[1(uint8),2(uint8)]",
    '[1,"a"]',
    "[1]([(int64,string)])",
    "|[1,2]|",
    "{a:|[]|(|[int64]|)}",
    '|{"a":1,"b":null(int64)}|',
    "|{::1 :1}|",
    "{a:|{}|(|{string:int64}|)}",
    "error(1)",
    'error({message:"no",on:1(uint8)})(error({message:string,on:uint8}))',
    "%up(enum(up,down))",
    "<int64>",
    "<{a:port=uint16,b:[port]}>",
    "80(port=uint16)",
    "{a:80(port=uint16),b:81(port)}",
    "{a:{x:1}(=point),b:{x:2}(point)}",
    "1((int64,string))",
    "null((int64,string))",
    "null(int64)((int64,string))",
    '{u:"x"((int64,string))}',
    '{"lake.Magic":1}(=lake.Magic)',
]


@pytest.mark.parametrize("line", LINES)
def test_what_is_written_is_read_and_written_again(line: str) -> None:
    assert format_value(parse_value(line)) == line


def test_every_value_of_every_lake_is_printed_as_zed_prints_it() -> None:
    count = 0
    for branch in stored_branches():
        printed = {format_value(value) for data in branch.objects for value in read_values(data)}
        assert set(branch.zson) <= printed, branch.name
        count += len(branch.zson)
    assert count > 2500


def test_values_of_every_lake_are_read_from_their_texts() -> None:
    count = 0
    for name, data in list(zng_files().items())[::5]:
        values = list(islice(read_values(data), 8))
        lines = [format_value(value) for value in values]
        # The sign of zero has no text.
        exact = [
            number
            for number, value in enumerate(values)
            if b"\x80" not in (value.body or b"") or "0." not in lines[number]
        ]
        assert [parse_value(lines[number]) for number in exact] == [values[number] for number in exact], name
        count += len(exact)
    assert count > 300


def test_texts_of_the_collection_are_read() -> None:
    files = sorted(path for path in (CASES / "zed").glob("*.zson") if path.stat().st_size < 20_000)
    if not files:
        pytest.skip(NO_CASES)
    for path in files:
        text = path.read_text()
        assert "".join(f"{format_value(value)}\n" for value in parse_values(text)) == text, path.name


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{ // comment\n a : 1 , /* more */ "b":"x" }', '{a:1,b:"x"}'),
        ("`a\n  b`", '"a\\nb"'),
        ("=>`a\n  b`", '"a\\n  b"'),
        (r'"\ud83d\ude00\/"', '"😀/"'),
        ("+5", "5"),
        (".5", "0.5"),
        ("1w", "7d"),
        ("2024-01-01T01:00:00+01:00", "2024-01-01T00:00:00Z"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("|[2,1,2]|", "|[1,2]|"),
        ('|{"b":1,"a":2}|', '|{"a":2,"b":1}|'),
        ("1(float64)", "1."),
        ("{a:1,a:2}", "{a:1}"),
        ('[1,"a",null]', '[1,"a",null]'),
        ("%b(enum(a,b))", "%b(enum(a,b))"),
        ('"b"(enum(a,b))', "%b(enum(a,b))"),
        ("18446744073709551615", "18446744073709551615(uint64)"),
    ],
)
def test_other_ways_of_writing_are_understood(text: str, canonical: str) -> None:
    assert format_value(parse_value(text)) == canonical


def test_values_stand_one_behind_the_other_and_share_the_names_of_types() -> None:
    port = NamedType("port", types.UINT16)
    assert list(parse_values("80(port=uint16)\n81(port) 82")) == [
        Value.of(port, 80),
        Value.of(port, 81),
        Value.of(types.INT64, 82),
    ]


def test_a_text_has_the_types_that_it_says() -> None:
    value = parse_value('{m:|{"a":1}|,s:|["x"]|,e:%up(enum(up,down)),u:1((int64,string)),p:80(port=uint16)}')
    assert value.type == record(
        m=MapType(types.STRING, types.INT64),
        s=SetType(types.STRING),
        e=EnumType(("up", "down")),
        u=UnionType((types.INT64, types.STRING)),
        p=NamedType("port", types.UINT16),
    )
    assert value.decode() == {"m": [("a", 1)], "s": ["x"], "e": "up", "u": Tagged(0, 1), "p": 80}


def test_a_decorator_can_use_names_that_the_value_defines() -> None:
    line = "[80(port=uint16),null]([(port,string)])"
    assert parse_value(line).type == ArrayType(UnionType((NamedType("port", types.UINT16), types.STRING)))


@pytest.mark.parametrize(
    "text",
    [
        "int64",
        "{a:[|[string]|],b:|{ip:net}|}",
        "(int64,string)",
        "enum(a,b)",
        "error(string)",
        "a=int64",
        '"a b"=int64',
    ],
)
def test_types_are_read_and_written_again(text: str) -> None:
    assert format_type(parse_type(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "'}' is missing"),
        ("{a}", "':' is missing"),
        ("{a:}", "a value is missing"),
        ("[1", "']' is missing"),
        ('"abc', "does not end on its line"),
        ('"\\q"', "unknown escape"),
        ('"\\ud800"', "surrogate"),
        ("1(", "a type is missing"),
        ("1(port)", "no type is named 'port'"),
        ("1(string)", "'1' is not of type string"),
        ("300(uint8)", "300 is not of type uint8"),
        ("%up", "followed by the type of an enum"),
        ("%up(enum(a))", "not a symbol"),
        ("[1](int64)", "are not of type int64"),
        ("true((int64,string))", "does not have the type bool"),
        ("[1,2(string)]", "'2' is not of type string"),
        ("{a:1}({b:int64})", "is not of type"),
        ("[" * 200, "nested"),
        ("<" + "[" * 200, "nested"),
        ("1" + "(int64)" * 100, "decorators"),
        ("a", "a value is missing"),
        ("1 2", "2 values instead of one"),
        ("", "0 values"),
        ("9999-99-99T00:00:00Z", "a value is missing"),
        ("3000-01-01T00:00:00Z", "a value is missing"),
    ],
)
def test_what_is_wrong_with_a_text_is_named(text: str, why: str) -> None:
    with pytest.raises(InvalidZson, match=why.replace("(", r"\(")):
        parse_value(text)
