#!/bin/sh
# Installs the compiled codec beside the package, when dist/native or dist/wheels has a wheel of it for this platform.
# Otherwise the codec in Python runs; `required` as the argument makes that an error.
set -eu
if pip install --no-cache-dir --disable-pip-version-check --quiet --no-deps \
    --no-index --find-links=dist/native --find-links=dist/wheels quorate-native; then
    # A wheel that can't be loaded must not go unnoticed: the codec in Python would run instead.
    QUORATE_NATIVE=on python -c 'from quorate_protocol.wire.codec.native import CODEC, CODEC_REASON
assert CODEC == "native", CODEC_REASON'
elif [ "${1:-}" = required ]; then
    echo 'no wheel of quorate-native in dist/native or dist/wheels fits, and the image must have one' >&2
    exit 1
else
    echo 'without quorate-native: no wheel in dist/native or dist/wheels fits; the codec in Python runs'
fi
