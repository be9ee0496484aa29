import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_eval.drivers.sse import EventSplitter

TEXT = "naïve — 方案：42 ✅\u2028next\u0085line 🤔".encode()


def fed(stream: bytes, size: int) -> list[bytes]:
    splitter = EventSplitter()
    return [e for i in range(0, len(stream), size) for e in splitter.feed(stream[i : i + size])]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_event_comes_out_whole_however_small_the_pieces(size: int, end: bytes) -> None:
    stream = b"data: first" + end * 2 + b"data: " + TEXT + end * 2 + b"data: [DONE]" + end * 2
    assert fed(stream, size) == [b"first", TEXT, b"[DONE]"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_bare_carriage_returns_end_lines_too(size: int) -> None:
    splitter = EventSplitter()
    stream = b"data: one\r\rdata: two\r\r"
    events = [e for i in range(0, len(stream), size) for e in splitter.feed(stream[i : i + size])]
    # The very last CR may still be half of a CRLF, so the last event may come with what follows.
    assert events + splitter.feed(b"data: three\r\r") + splitter.feed(b"\n") == [b"one", b"two", b"three"]


def test_a_crlf_split_between_two_reads_is_one_line_end() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: one\r") == []
    assert splitter.feed(b"\ndata: two\r\n\r") == []
    assert splitter.feed(b"\n") == [b"one\ntwo"]


def test_many_events_in_one_read_keep_their_order() -> None:
    stream = b"".join(b"data: %d\n\n" % i for i in range(500))
    assert EventSplitter().feed(stream) == [str(i).encode() for i in range(500)]


def test_comments_and_other_fields_are_passed_over() -> None:
    stream = b": ping\n\nid: 4\nevent: message\nretry: 10\ndata: kept\n\n: ping\n\n\n\nid: 5\n\n"
    assert EventSplitter().feed(stream) == [b"kept"]


def test_one_space_after_the_colon_belongs_to_the_framing_and_no_more() -> None:
    assert EventSplitter().feed(b"data:none\n\ndata: one\n\ndata:  two\n\n") == [b"none", b"one", b" two"]


def test_data_lines_of_one_event_are_joined_by_a_line_end() -> None:
    assert EventSplitter().feed(b'data: {"a":\n: aside\ndata: 1}\n\n') == [b'{"a":\n1}']


def test_unicode_line_separators_are_no_line_ends() -> None:
    data = "a\u2028b\u2029c\u0085d\x0be\x0cf".encode()
    assert EventSplitter().feed(b"data: " + data + b"\n\n") == [data]


def test_a_character_cut_by_the_network_waits_for_its_other_half() -> None:
    splitter = EventSplitter()
    whole = "data: 🤔\n\n".encode()
    assert splitter.feed(whole[:8]) == []
    assert splitter.feed(whole[8:]) == ["🤔".encode()]


def test_done_without_its_last_blank_line_is_left_over() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: last\n\ndata: [DONE]\n") == [b"last"]
    assert splitter.feed(b"\n") == [b"[DONE]"]


def by_lines(stream: bytes) -> list[bytes]:
    """The standard's own way, line by line over the whole stream; nothing incremental about it."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in re.split(rb"\r\n|\r|\n", stream):
        if not line:
            if data:
                events.append(b"\n".join(data))
            data = []
        elif line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
    return events


LINES = st.one_of(
    st.binary(max_size=12).map(lambda b: b"data: " + re.sub(rb"[\r\n]", b"", b)),
    st.text("aé🤔\u2028\u0085{}:", max_size=6).map(lambda t: b"data:" + t.encode()),
    st.sampled_from([b"", b"", b": comment", b"event: x", b"id:7"]),
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(LINES, ENDS), max_size=25), st.data())
def test_any_chunking_gives_the_events_of_the_whole_stream(
    lines: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(line + end for line, end in lines) + b"\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    splitter = EventSplitter()
    events = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += splitter.feed(stream[start:stop])
    assert events == by_lines(stream)


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_byte_order_mark_before_the_first_event_is_passed_over(size: int) -> None:
    assert fed(b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", size) == [b"a", b"b"]
    assert fed(b"\xef\xbb\xbf: hello\n\ndata: b\n\n", size) == [b"b"]
