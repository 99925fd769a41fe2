"""``perfsvc.toml`` and ``PERFSVC_*`` variables, validated: what is in force, and where each value came from."""
