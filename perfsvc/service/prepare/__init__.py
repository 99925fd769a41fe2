"""What several use cases need before they measure: targets, compiled code, inputs, groups of GPUs, environments."""
