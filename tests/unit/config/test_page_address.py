"""The address of the site goes into links that every reader sees."""

import pytest
from pydantic import ValidationError

from perfsvc.config import ServerSettings


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://ann:secret@host/", "https://ann@host/", "https://h/\n"]
)
def test_an_address_that_is_no_link_for_readers_is_refused(url):
    with pytest.raises(ValidationError) as error:
        ServerSettings(public_url=url)
    assert "secret" not in error.value.errors()[0]["msg"]
