"""Every benchmark, one after the other: about ten minutes; --quick: about three, for a look. I/O (processes, files).

    python bench/all.py [--quick]

Needs two cores that do nothing else; rows say "disturbed" where that was not so. Results: bench/results/latest.json.
"""

import argparse

import cost
import overhead
import rate
import truth

PARTS = {
    truth: "--streams 100 400 --hold-s 2.5",
    rate: "--streams 1000 2000 --tls 500 --plain 10 50 --hold-s 2",
    cost: "--many 400 --hold-s 2 --analysed 100000",
    overhead: "--streams 400 --tokens 60000",
}
"""Each part, and its arguments for a quick look."""


def main():
    parser = argparse.ArgumentParser(description="Every benchmark.")
    parser.add_argument(
        "--quick", action="store_true", help="short windows, fewer levels: for a look, not for a README"
    )
    quick = parser.parse_args().quick
    for part, arguments in PARTS.items():
        part.main(arguments.split() if quick else [])


if __name__ == "__main__":
    main()
