"""What a device that is lost means for the tests that come after."""

import json

import pytest
from harness import Kernels

from perfsvc.device.fake import FakeDevice


def test_a_case_that_leaves_the_device_unusable_ends_the_tests_and_is_named(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"cases": {"vector_add/guarded[n=5]": {"fault": "illegal"}}}))
    kernels = Kernels(FakeDevice(script))
    kernels.check("vector_add/guarded", n=4)
    with pytest.raises(pytest.exit.Exception, match=r"vector_add/guarded\[n=5\] left fake:\S+ unusable: illegal"):
        kernels.check("vector_add/guarded", n=5)


def test_untimed_python_steps_are_not_part_of_a_sample(kernels):
    point = {"n": 20}
    assert set(kernels.measure("dot", **point)) - set(kernels.measure("dot", python=False, **point)) == {
        "triton",
        "cupy",
    }
