"""The server's address and the key it wants: every call carries the key, and nothing that anybody reads repeats it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, answer

from speedbench.errors import UserError
from speedbench.serving.client import Client
from speedbench.serving.exchange import Exchange
from speedbench.types import Sampling

KEY = "sk-TESTKEY"


def chat(client: Client) -> Exchange:
    return client.submit(client.chat([{"role": "user", "content": "hello"}], Sampling())).result(30)


@pytest.mark.parametrize("how", ["key_env", "key_file"])
def test_case_93_every_call_carries_the_key_and_no_message_repeats_it(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    (tmp_path / "key").write_text(KEY + "\n")
    source: Any = "TEST_KEY" if how == "key_env" else tmp_path / "key"
    with ScriptedServer([answer("a")], key=KEY) as server, Client(server.url, "m", **{how: source}) as client:
        assert [chat(client).failure for _ in range(3)] == [None] * 3
        assert client.get("/health").ok
        assert [each.headers["Authorization"] for each in server.asked] == [f"Bearer {KEY}"] * 4
        server.key = "another"
        found = chat(client)
        assert found.failure is not None
        assert (found.failure.status, found.failure.message) == (401, "HTTP 401: bad key Bearer ***")
        assert KEY not in repr(found) + repr(client) + repr(client.notes)


def test_case_93_a_key_that_is_not_there_or_not_one_is_an_error_that_does_not_quote_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EMPTY", " ")
    monkeypatch.setenv("TWO", f"{KEY} {KEY}")
    monkeypatch.delenv("NONE", raising=False)
    wrong: list[dict[str, Any]] = [
        {"key_env": "EMPTY"}, {"key_env": "NONE"}, {"key_env": "TWO"}, {"key_file": tmp_path / "none"},
        {"key_env": "TWO", "key_file": tmp_path / "none"},
    ]  # fmt: skip
    for how in wrong:
        with pytest.raises(UserError) as caught:
            Client("http://127.0.0.1:1", "m", **how)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://a", "http://", "http://user:secret@a", "http://a:port", "http://[::1", ""]
)
def test_a_url_that_is_none_or_holds_a_password_is_an_error_that_does_not_quote_it(url: str) -> None:
    with pytest.raises(UserError) as caught:
        Client(url, "m")
    assert "secret" not in str(caught.value)


def test_the_root_may_be_given_with_or_without_its_v1() -> None:
    for url in ("http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/"):
        assert Client(url, "m").url == "http://a:1"
