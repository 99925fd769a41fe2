from perfsvc.suite import Variant

Variant("plain", sorce="scale.cu")  # problem: reading it raised TypeError
