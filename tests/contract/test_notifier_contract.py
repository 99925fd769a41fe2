"""What every notifier promises (perfsvc/notify/notifier.py), asked of each: Apprise's by a receiver on loopback."""

import logging
import socket
import threading
from email import message_from_bytes
from email.policy import default
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from apprise.plugins.discord import NotifyDiscord

from perfsvc.errors import NotSentError
from perfsvc.model import Message
from perfsvc.notify.fake import FakeNotifier
from perfsvc.notify.notifier import HEADER, AppriseNotifier

SECRET = "a-secret-token"  # noqa: S105 - of no one
MESSAGE = Message(
    "perfsvc-5ca1ab1e",
    "scale/alpha[n=1000] is 5.3 % slower",
    "2 new findings\n\n  +5.3 %  scale/<b>*al_pha*</b>[n=1000] & more\n\nperfsvc findings show 7",
)
STATUS = {"down": 500, "refuse": 404, "hang": "hang"}


class Apprise:
    """Apprise's notifier, and a receiver that answers as scripted."""

    def __init__(self, receiver):
        self.receiver, self.address = receiver, receiver.address()

    def notifier(self, *script):
        self.receiver.answers = [STATUS.get(fault, 200) for fault in script]
        return AppriseNotifier(limit_s=0.2 if "hang" in script else 10.0)

    @property
    def arrived(self):
        return [(one.json["title"], one.json["message"], one.headers[HEADER]) for one in self.receiver.received]


class Fake:
    """The notifier of the tests."""

    address = f"fake://{SECRET}"

    def __init__(self, receiver):
        pass

    def notifier(self, *script):
        self._notifier = FakeNotifier({self.address: script})
        return self._notifier

    @property
    def arrived(self):
        return [(one.title, one.body, one.key) for _, one in self._notifier.sent]


@pytest.fixture(params=[Apprise, Fake])
def kind(request, receiver):
    return request.param(receiver)


def test_a_message_arrives_with_its_title_its_body_and_its_key_at_each_attempt(kind):
    notifier = kind.notifier()
    for _ in range(2):
        notifier.send(MESSAGE, kind.address)
    assert kind.arrived == [(MESSAGE.title, MESSAGE.body, MESSAGE.key)] * 2


@pytest.mark.parametrize(("fault", "again"), [("down", True), ("hang", True), ("refuse", False)])
def test_a_failure_says_whether_another_attempt_may_help_and_never_where_to(kind, fault, again):
    notifier = kind.notifier(fault)
    with pytest.raises(NotSentError, match="the target") as raised:
        notifier.send(MESSAGE, kind.address)
    assert raised.value.again is again
    assert SECRET not in f"{raised.value!r} {raised.value} {raised.value.__context__!r}"


def test_what_failed_may_be_sent_again_at_once(kind):
    notifier = kind.notifier("down", "down", "")
    for _ in range(2):
        with pytest.raises(NotSentError):
            notifier.send(MESSAGE, kind.address)
    notifier.send(MESSAGE, kind.address)
    assert kind.arrived[-1] == (MESSAGE.title, MESSAGE.body, MESSAGE.key)


# --- Apprise's alone -------------------------------------------------------------------------------------------------


@pytest.fixture
def sending(receiver):
    """Sends through Apprise, and gives what the receiver got last."""

    def send(address=None, limit_s=10.0):
        AppriseNotifier(limit_s).send(MESSAGE, address or receiver.address())
        return receiver.received[-1] if receiver.received else None

    return send


class Conversation(StreamRequestHandler):
    """Takes a mail by SMTP."""

    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            self.wfile.write({b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}.get(word, b"250 done\r\n"))
            if word == b"DATA":
                self.server.lines = list(iter(self.rfile.readline, b".\r\n"))
                self.wfile.write(b"250 taken\r\n")
            elif word == b"QUIT":
                return


@pytest.fixture
def mailbox():
    with ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def failure_of(sending, **given):
    with pytest.raises(NotSentError) as raised:
        sending(**given)
    return raised.value.what, raised.value.again


@pytest.mark.parametrize("schema", ["json", "xml", "form"])
def test_the_key_is_a_header_where_the_target_has_headers_and_no_line_of_the_text(sending, receiver, schema):
    got = sending(receiver.address(schema))
    assert got.headers[HEADER] == MESSAGE.key
    assert MESSAGE.key.encode() not in got.content


def test_headers_of_the_address_stay_beside_the_key(sending, receiver):
    got = sending(receiver.address() + "?+X-Mine=1&method=POST")
    assert (got.headers["X-Mine"], got.headers[HEADER]) == ("1", MESSAGE.key)


@pytest.mark.parametrize(
    ("schema", "path", "text"), [("ntfy", "nightly", "message"), ("mmost", "3ccdd113474722377935511fc85d3dd4", "text")]
)
def test_the_key_is_the_last_line_of_the_text_where_the_target_has_no_headers(sending, receiver, schema, path, text):
    got = sending(receiver.address(schema, path))
    assert got.json[text].endswith(f"{MESSAGE.body}\n\nkey: {MESSAGE.key}")
    assert HEADER not in got.headers


def test_a_mail_is_plain_text_whose_lines_stay_and_the_key_is_a_header(sending, mailbox):
    port = mailbox.server_address[1]
    sending(f"mailto://127.0.0.1:{port}?from=perf@example.org&to=me@example.org&cache=insecure")
    mail = message_from_bytes(b"".join(mailbox.lines), policy=default)
    assert (mail["Subject"], mail[HEADER]) == (MESSAGE.title, MESSAGE.key)
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().splitlines() == MESSAGE.body.splitlines()


@pytest.mark.parametrize(
    ("answer", "what", "again"),
    [
        (500, "the target answered 500 Internal Server Error", True),
        (503, "the target answered 503 Service Unavailable", True),
        (429, "the target answered 429 Too Many Requests", True),
        (401, "the target answered 401 Unauthorized", False),
        (413, "the target answered 413", False),
        (599, "the target answered 599", True),
        ("close", "the target closed the connection", True),
        ("hang", "the target did not answer within 0.2 s", True),
        ("drip", "the target did not answer within 0.2 s", True),
    ],
)
def test_what_the_target_does_is_put_into_words(sending, receiver, answer, what, again):
    receiver.answers = [answer]
    said, whether = failure_of(sending, limit_s=0.2 if answer in {"hang", "drip"} else 10.0)
    assert said.startswith(what)
    assert whether is again


@pytest.mark.parametrize(
    ("address", "what", "again"),
    [
        ("json://127.0.0.1:1/a-secret-token", "nothing listens at the target", True),
        ("nosuch://a-secret-token", "the target's address is not a valid Apprise URL", False),
        ("a-secret-token", "the target's address is not a valid Apprise URL", False),
    ],
)
def test_what_is_wrong_with_an_address_is_said_without_it(sending, address, what, again):
    assert failure_of(sending, address=address) == (what, again)


def test_a_host_that_nobody_knows_is_said_without_its_name(sending, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = failure_of(sending, address="json://a-secret-token.example/hook")
    assert said == ("the name of the target's host is not known", True)


def test_what_is_sent_is_not_taken_for_the_reason_of_a_failure(sending, receiver, monkeypatch):
    monkeypatch.setattr(f"{__name__}.MESSAGE", Message("key", "title", "x Exception: timed out, error=404"))
    receiver.answers = [502]
    assert failure_of(sending) == ("the target answered 502 Bad Gateway", True)


def test_no_log_of_the_process_gets_the_address(sending, receiver, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    receiver.answers = [500]
    failure_of(sending)
    failure_of(sending, address=f"nosuch://{SECRET}")
    sending()
    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err


def test_markup_arrives_as_it_was_written(sending):
    assert sending().json["message"] == MESSAGE.body


@pytest.mark.parametrize(("more", "parts"), [("", 1), ("?overflow=split", 3)])
def test_a_chat_gets_no_more_than_it_takes_in_one_message_unless_its_address_says_so(monkeypatch, more, parts):
    sent = []
    monkeypatch.setattr(NotifyDiscord, "send", lambda _, body, *__, **___: sent.append(body) or True)
    lines = [f"- finding {number} of a bad night" for number in range(200)]
    long = Message("perfsvc-5ca1ab1e", "200 new findings", "\n".join(lines))
    AppriseNotifier().send(long, f"discord://{'1' * 18}/{'a' * 64}{more}")
    assert len(sent) == parts
    assert max(map(len, sent)) <= NotifyDiscord.body_maxlen
    assert sent[0].startswith("\n".join(lines[:40]))
    assert sent[-1].endswith("\n\nkey: perfsvc-5ca1ab1e")
    assert ("(and more: perfsvc findings)" in sent[0]) == (parts == 1)
