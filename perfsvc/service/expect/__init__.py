"""What nights are expected to have because earlier nights had it: hosts, GPUs, cases. What is missing is a finding."""
