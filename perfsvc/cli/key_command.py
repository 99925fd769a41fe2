"""``perfsvc key``."""

import sys

import click

from perfsvc.cli import options, output


@click.group("key")
def command() -> None:
    """List, add and remove the keys that may sign code for this host.

    perfsvc signs the code that it stores, and runs code from a database only if a key of yours has signed it. Your
    first run makes a key. Hosts that share a database need one key in common: show the key of one host, and add it on
    the others.
    """


@command.command("list")
@options.formats
def list_(output_format: str) -> None:
    """List the fingerprints of the keys that you trust; the first one signs."""
    from perfsvc.keys import Keys, fingerprint

    keys = Keys()
    names = [fingerprint(secret) for secret in keys.secrets]
    if output_format == "json":
        output.show_json({"file": str(keys.file), "keys": names})
    elif names:
        click.echo(str(keys.file))
        click.echo("\n".join(f"{name}  {'signs' if name == names[0] else 'is trusted'}" for name in names))
    else:
        click.echo(f"there is no key yet in {keys.file}: your first run makes one")


@command.command("show")
@options.formats
def show(output_format: str) -> None:
    """Print your signing key, to add it on another host. A person who has this key can run code on your hosts."""
    from perfsvc.keys import Keys

    key = Keys().signing().hex()
    if output_format == "json":
        output.show_json({"key": key})
    else:
        click.echo(key)


@command.command("add")
@options.formats
def add(output_format: str) -> None:
    """Read a key from standard input, trust it, and sign with it from now on. Earlier keys stay trusted."""
    from perfsvc.keys import Keys

    text = click.prompt("key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    name = Keys().add(text)
    if output_format == "json":
        output.show_json({"added": name})
    else:
        click.echo(f"{name} is trusted, and signs from now on")


@command.command("remove")
@click.argument("fingerprint")
@options.formats
def remove(fingerprint: str, output_format: str) -> None:
    """Trust the key FINGERPRINT no longer: code that only this key has signed runs no more."""
    from perfsvc.keys import Keys

    Keys().remove(fingerprint)
    if output_format == "json":
        output.show_json({"removed": fingerprint})
    else:
        click.echo(f"{fingerprint} is not trusted any more")
