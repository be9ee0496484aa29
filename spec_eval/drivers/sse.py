"""Server-sent events out of raw bytes.

Events are split as bytes and decoded whole, so a character cut by the network stays whole, and U+2028 or U+0085
inside a text is no line end. JSON holds no raw line ends, so folding CR and CRLF to LF never touches a text.
"""

DONE = b"[DONE]"
_MARK = b"\xef\xbb\xbf"  # a stream may begin with a byte-order mark


class EventSplitter:
    """Feeds on bytes as they arrive and gives the data of each finished event."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Data of the events that `data` finishes; comments and other fields are passed over."""
        buffer = self._buffer + data if self._buffer else data
        if b"\r" in buffer:
            # The last byte may be half of a CRLF: it waits for the other half.
            tail = b"\r" if buffer.endswith(b"\r") else b""
            buffer = buffer[: len(buffer) - len(tail)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + tail
        *events, self._buffer = buffer.split(b"\n\n")
        return [found for event in events if (found := _data(event)) is not None]


def _data(event: bytes) -> bytes | None:
    if b"\n" not in event:
        return _value(event)
    parts = [value for line in event.split(b"\n") if (value := _value(line)) is not None]
    return b"\n".join(parts) if parts else None


def _value(line: bytes) -> bytes | None:
    """Of a data line. Older llama.cpp servers write an error as a field of its own; its value is the same JSON."""
    for field in (b"data:", b"error:"):
        if line.startswith(field):
            return line[len(field) :].removeprefix(b" ")
    return _value(line.removeprefix(_MARK)) if line.startswith(_MARK) else None
