"""The gate: holds back a stream until the host has queued all that is to run without it.

Whatever delays the host while it queues (a busy machine, Python itself) then delays the blocking kernel's opening, and never
comes to lie between an event and its launch, where it would be taken for the kernel's time.
"""

from typing import Any

import numpy as np

from perfsvc.device.cuda.helper_kernels import HelperKernels, mapped
from perfsvc.device.helper_kernels import GATE

LIMIT_S = 1.0
"""Seconds after which the blocking kernel opens by itself. A host that has not queued its sample by then is waiting for it."""

_NS_PER_S = 1e9


class Gate:
    """A gate on one stream; closed and opened again for each sample."""

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._words, self._address = mapped(2, np.uint32)  # the ticket let through, the ticket given up
        self._ticket = 0

    def close(self) -> None:
        """Queues the kernel that everything after it has to wait for."""
        self._ticket += 1
        self._helper_kernels.launch(
            self._stream,
            GATE,
            self._address,
            np.uint64(int(self._address) + self._words.itemsize),
            np.uint32(self._ticket),
            np.uint64(LIMIT_S * _NS_PER_S),
        )

    def open(self) -> None:
        """Lets everything through that was queued."""
        self._words[0] = self._ticket

    @property
    def held(self) -> bool:
        """Whether the last gate stayed closed until it was opened; to be asked after what was queued is done."""
        return bool(self._words[1] != self._ticket)
