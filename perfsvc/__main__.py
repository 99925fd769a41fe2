"""``python -m perfsvc`` is ``perfsvc``."""

from perfsvc.cli import main

main()
