"""Devices: where binaries run. One protocol, three implementations (CUDA, CPU, fake)."""
