"""Fetches the JavaScript libraries that come with the package: the releases pinned here, from the npm registry, by npm.

    python placer/views/page/vendor/fetch.py

npm checks what it fetched against the registry; this checks it against the sums below, which a person looked at when the release
was taken up. The licence of each goes beside it.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent
PACKAGES = {
    "cytoscape@3.34.4": (
        "sha512-msY99tMY8iWTg+sIPGfSqDcPNOt4xcj+v/K/7qUFaCUxxlqnMkUYLBjRUzn9W5CU/R2hrmtJa5+UtovrEM2ctg==",
        {"dist/cytoscape.min.js": "cytoscape.min.js", "LICENSE": "cytoscape.LICENSE"},
    ),
    "@dagrejs/dagre@3.1.3": (
        "sha512-X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==",
        {"dist/dagre.min.js": "dagre.min.js", "LICENSE": "dagre.LICENSE"},
    ),
}
"""By release: the archive's integrity as npm writes it, and where its files go."""


def main() -> None:
    """Fetches, checks and unpacks them."""
    with tempfile.TemporaryDirectory() as folder:
        for release, (integrity, files) in PACKAGES.items():
            packed = subprocess.run(
                ["npm", "pack", "--silent", release], cwd=folder, check=True, capture_output=True, text=True
            ).stdout.split()[-1]
            archive = Path(folder) / packed
            digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if digest != integrity:
                raise SystemExit(f"{release} is {digest}, not {integrity}: look at what changed before taking it up.")
            with tarfile.open(archive) as tar:
                for source, target in files.items():
                    content = tar.extractfile(f"package/{source}")
                    assert content is not None
                    (VENDOR / target).write_bytes(content.read())
            print(f"{release}: {', '.join(files.values())}")


if __name__ == "__main__":
    main()
