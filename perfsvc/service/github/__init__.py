"""Show a check or a comparison in a pull request on GitHub: ``perfsvc github``."""
