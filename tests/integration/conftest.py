"""Makes the helpers of this folder, and the database server of the store's, importable."""

from __future__ import annotations

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "store")]
