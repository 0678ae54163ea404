"""Cutting a byte stream into frames."""

import pytest
from quorate_protocol.errors import FrameTooLarge
from quorate_protocol.wire.frames import FrameDecoder, encode_frame

PAYLOADS = [b"", b"a", b"bc" * 100, b"\x00" * 7]
STREAM = b"".join(encode_frame(payload) for payload in PAYLOADS)


def test_one_byte_at_a_time() -> None:
    decoder = FrameDecoder()
    assert [frame for byte in STREAM for frame in decoder.feed(bytes([byte]))] == PAYLOADS
    assert decoder.buffered_size_bytes == 0


@pytest.mark.parametrize("chunk_size", [2, 3, 4, 5, 7, 11, 64, 1000])
def test_chunks_of_any_size(chunk_size: int) -> None:
    decoder = FrameDecoder()
    chunks = [STREAM[start : start + chunk_size] for start in range(0, len(STREAM), chunk_size)]
    assert [frame for chunk in chunks for frame in decoder.feed(chunk)] == PAYLOADS


def test_unfinished_frame_is_held() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(STREAM[:-1]) == PAYLOADS[:-1]
    assert decoder.buffered_size_bytes == 4 + 6
    assert decoder.feed(STREAM[-1:]) == PAYLOADS[-1:]


@pytest.mark.parametrize(
    "length", [b"\x00\x00\x00\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"]
)
def test_impossible_length_ends_the_stream(length: bytes) -> None:
    decoder = FrameDecoder(frame_size_bytes_max=10)
    assert decoder.feed(length[:3]) == []
    with pytest.raises(FrameTooLarge, match="at most 10"):
        decoder.feed(length[3:])
    assert decoder.buffered_size_bytes == 0
    with pytest.raises(FrameTooLarge):
        decoder.feed(encode_frame(b"a"))


def test_frame_of_exactly_the_limit_passes() -> None:
    assert FrameDecoder(frame_size_bytes_max=10).feed(encode_frame(b"x" * 10)) == [b"x" * 10]
