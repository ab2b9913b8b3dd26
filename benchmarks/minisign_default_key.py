"""Opens a secret key that minisign sealed with its default limits: 1 GiB of memory and some seconds, hence by hand.

    python -m benchmarks.minisign_default_key

Ends with an error where our reading of libsodium's limits is not minisign's.
"""

import time
from pathlib import Path

from workbench.bundle.signing import parse_public_key, read_secret_key

DATA = Path(__file__).parents[1] / "tests" / "bundle" / "signing" / "data"


def main() -> None:
    file = DATA / "sealed.key"
    file.chmod(0o600)
    started = time.perf_counter()
    opened = read_secret_key(file, lambda: "pw")
    assert opened.public == parse_public_key((DATA / "sealed.pub").read_text().splitlines()[1])
    print(f"opened key {opened.public.name} in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
