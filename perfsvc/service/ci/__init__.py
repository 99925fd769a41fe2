"""Files that make GitHub or GitLab compare the kernels of each pull request: ``perfsvc init --github``, ``--gitlab``.

They are templates in ``templates/``, in which the suite and the source of perfsvc are filled in.
"""
