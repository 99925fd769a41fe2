"""Inputs and references kept in the device's memory, for the cases of a replica that have them in common."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError


class Vault:
    """Uploads an array once and copies it within the device from then on; forgets what was used longest ago.

    Args:
        device: whose memory it is.
        budget_bytes: how much of it may be used; 0 where a copy within the device gains nothing.
    """

    def __init__(self, device: Device, budget_bytes: int) -> None:
        self._device = device
        self._budget = budget_bytes
        self._kept: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()  # address and size

    def bring(self, key: Hashable, array: NDArray[Any], target: int) -> None:
        """Has a host array at an address of the device; equal keys mean equal content."""
        if (address := self.address(key, array)) is None:
            self._device.upload(target, array)
        else:
            self._device.copy(target, address, array.nbytes)

    def empty(self) -> None:
        """Gives back all memory."""
        while self._kept:
            self._device.free(self._kept.popitem()[1][0])

    def address(self, key: Hashable, array: NDArray[Any]) -> int | None:
        """Where a host array lies in the device's memory until the next call; None where there is no room for it.

        Raises:
            LaunchError: the device's context is lost.
        """
        if key not in self._kept:
            if array.nbytes > self._budget:
                return None
            while sum(nbytes for _, nbytes in self._kept.values()) + array.nbytes > self._budget:
                self._device.free(self._kept.popitem(last=False)[1][0])
            try:
                address = self._device.allocate_aside(array.nbytes)
            except LaunchError as error:
                if error.fatal:
                    raise
                return None  # there is less memory than the budget
            self._device.upload(address, np.ascontiguousarray(array))
            self._kept[key] = (address, array.nbytes)
        self._kept.move_to_end(key)
        return self._kept[key][0]
