"""``perfsvc devices``."""

import click

from perfsvc.cli import options, output


@click.command("devices")
@options.formats
def command(output_format: str) -> None:
    """List the devices of this machine: every GPU, and the CPU device.

    GPUs are listed in the order of cuda:0, cuda:1 and so on; a GPU in MIG mode is listed as its instances. Below them
    is what connects each two GPUs of one model.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import devices_table
    from perfsvc.service.doctor import devices, links, toolkit

    rows = devices()
    if output_format == "json":
        output.show_json([plain(row) | {"toolkit": toolkit(row)} for row in rows])
    else:
        output.show(devices_table(rows, {row.uuid: toolkit(row) for row in rows}, links(rows)))
