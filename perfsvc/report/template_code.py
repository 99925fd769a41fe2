"""The code that Jinja makes of templates, kept in the build cache.

To make the code of all templates of the site anew takes 0.4 s in each process.
"""

import contextlib

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from perfsvc import __version__
from perfsvc.errors import InfrastructureError
from perfsvc.model import digest


class TemplateCode(BytecodeCache):
    """Reads and writes the code of templates.

    Code is used only if the template, the options of its environment and the versions are the same. Without a cache
    that this user can write, templates are compiled.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the code of a template, if the cache has it."""
        from perfsvc.build.cache import Cache  # the package of compilers takes long to import

        with contextlib.suppress(InfrastructureError):
            code = Cache().get(self._key(bucket))
            if code is not None:
                try:
                    bucket.bytecode_from_string(code)
                except Exception:  # noqa: BLE001 - whatever Jinja finds in a damaged entry
                    bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the code of a template, unless the cache cannot be written."""
        from perfsvc.build.cache import Cache

        with contextlib.suppress(InfrastructureError):
            Cache().put(self._key(bucket), bucket.bytecode_to_string())

    @staticmethod
    def _key(bucket: Bucket) -> str:
        of = bucket.environment
        options = f"{of.autoescape} {of.trim_blocks} {of.lstrip_blocks}"  # they are part of the code
        return digest(f"template {bucket.key} {__version__} {jinja2.__version__} {options}".encode())
