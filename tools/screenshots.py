"""Write docs/images/status-page.png: the status page as its test in a real browser shows it. Needs Chromium."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "images" / "status-page.png"
TEST = "tests/browser/test_status_page.py::test_it_fits_phones_tablets_and_desks_by_day_and_by_night"
PICTURE = "busy-1280-light.png"
HEIGHT_MAX = 1000
COLORS = 128
"""The page has few: a palette makes the file a third of its size."""


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", TEST, "-k", "1280 and light"],
            cwd=ROOT,
            env={**os.environ, "QUORATE_SCREENSHOTS": folder, "QUORATE_REQUIRE": "browser"},
            check=False,
        )
        if ran.returncode:
            return ran.returncode
        picture = Image.open(Path(folder) / PICTURE).convert("RGB")
    TARGET.parent.mkdir(exist_ok=True)
    cropped = picture.crop((0, 0, picture.width, min(picture.height, HEIGHT_MAX)))
    cropped.quantize(COLORS).save(TARGET, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
