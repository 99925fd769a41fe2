"""Start a night every day: files for cron, systemd, Kubernetes and Slurm, and a daemon."""
