"""Tests without a daemon: the arithmetic of leases, the order of attempts, and values on the wire."""

from __future__ import annotations

import json
import ssl
import unittest
from pathlib import Path
from typing import Any, Dict

from lockkeeper import _wire
from lockkeeper._errors import Busy, Refused, Unreachable, error_of
from lockkeeper._lease import Lease


class Leases(unittest.TestCase):
    def test_validity_counts_from_sending_on_a_clock_that_may_be_slewed(self) -> None:
        lease = Lease(100.0, 12_000)
        # While chrony corrects it, a clock runs slow by up to 1/12: when it shows 11 s, 12 s may have passed.
        self.assertGreater(lease.left(110.9), 0)
        self.assertEqual(lease.left(111.1), 0)
        # The answer arrived at 105; that does not count.
        lease.renew(104.0, 12_000)
        self.assertAlmostEqual(lease.left(105.0), 10.0)

    def test_a_keep_alive_leaves_time_for_another_daemon(self) -> None:
        lease = Lease(0.0, 12_000)
        self.assertLess(lease.renewal_in(0.0), 4.0)
        self.assertEqual(lease.renewal_in(5.0), 0.0)
        self.assertLessEqual(5.0 + 2 * lease.timeout(5.0), 11.0)
        self.assertTrue(lease.is_fresh(5.4))
        self.assertFalse(lease.is_fresh(5.6))

    def test_a_hold_that_its_session_does_not_list_is_lost(self) -> None:
        alive = {"lost": [{"hold": "1-2", "name": "a", "reason": "revoked"}], "valid_for_ms": 500}
        self.assertEqual(_wire.alive(alive, "1-2").lost, "revoked")
        self.assertEqual(_wire.alive(alive, "1-1"), _wire.Answer(500, None))
        self.assertIsNotNone(_wire.alive({"lost": []}, "1-1").lost)


class Attempts(unittest.TestCase):
    def test_every_daemon_is_asked_before_a_pause(self) -> None:
        attempts = _wire.Attempts(3, 1)
        asked = []
        for place in range(6):
            asked.append(attempts.endpoint())
            error, pause = attempts.failed(OSError("refused"), 0.0, 0.0)
            self.assertIsNone(error)
            self.assertEqual(pause > 0, place in (2, 5))
        self.assertEqual(asked, [1, 2, 0, 1, 2, 0])

    def test_the_client_gives_up_in_time(self) -> None:
        for deadline, gives_up in [(None, 10.0), (0.0, 2.0), (5.0, 5.0), (500.0, 10.0)]:
            attempts = _wire.Attempts(1, 0, deadline)
            self.assertIsNone(attempts.failed(OSError("refused"), 0.0, 0.0)[0])
            self.assertIsNone(attempts.failed(OSError("refused"), 0.0, gives_up - 0.1)[0])
            self.assertIsInstance(attempts.failed(OSError("refused"), 0.0, gives_up)[0], Unreachable)

    def test_a_daemon_with_which_tls_fails_is_not_asked_again(self) -> None:
        attempts = _wire.Attempts(2, 0)
        failure = ssl.SSLCertVerificationError("unknown authority")
        self.assertIsNone(attempts.failed(failure, 0.0, 0.0)[0])
        self.assertEqual(attempts.endpoint(), 1)
        attempts.failed(OSError("refused"), 0.0, 0.0)
        self.assertEqual(attempts.endpoint(), 1)
        error, _ = attempts.failed(failure, 0.0, 0.0)
        assert error is not None
        self.assertEqual(error.error, "tls")


class Values(unittest.TestCase):
    def test_the_value_of_a_candidate_is_that_of_the_rust_library(self) -> None:
        purpose = _wire.purpose_of("a:80", "me")
        self.assertEqual(purpose, '{"holder":"me","host":"","pid":0,"since_ms":0,"metadata":{"value":"a:80"}}')
        holder = {"purpose": purpose, "fence": 7, "owner": "me"}
        self.assertEqual(_wire.leader_of({"holders": [holder]}), _wire.Leader("a:80", 7, "me"))
        self.assertEqual(_wire.leader_of({"holders": [{**holder, "purpose": "plain"}]}), _wire.Leader("plain", 7, "me"))
        self.assertIsNone(_wire.leader_of({"holders": []}))
        self.assertLessEqual(len(_wire.purpose_of("v", "o" * 250)), 256)
        with self.assertRaisesRegex(ValueError, "250 characters"):
            _wire.purpose_of("v" * 250, "me")

    def test_requests_do_not_change(self) -> None:
        """The file is also that of the other clients, and the daemon's tests read it."""
        name, owner = "a/b é", "web-3"
        permit = {"mode": "permit", "permits": 3}

        def acquire(mode: Dict[str, Any]) -> _wire.Call:
            return _wire.acquire(name, mode, "1a", "r1", "backup", 2.0)

        requests = {
            "new session": _wire.new_session(30.0, owner),
            "keep-alive": _wire.keep_alive("1a", 1.0),
            "end session": _wire.end_session("1a"),
            "acquire exclusive": acquire({"mode": "exclusive"}),
            "acquire shared": acquire({"mode": "shared"}),
            "acquire permit": acquire(permit),
            "release": _wire.release(name, "1a-4"),
            "hold as": _wire.hold_as(name, permit, owner, 7.0, "kernel", 2.0),
            "detached": _wire.find_detached(name, owner),
            "release as": _wire.release_as(name, owner),
        }
        sent = {
            key: {"method": call.method, "path": call.path, "body": None if call.body is None else json.loads(call.body)}
            for key, call in requests.items()
        }
        golden = Path(__file__).parents[2] / "conformance" / "requests.json"
        self.assertEqual(sent, json.loads(golden.read_text(encoding="utf-8")))

    def test_errors_have_types(self) -> None:
        self.assertIsInstance(error_of(409, json.dumps({"error": "busy", "message": "m"}).encode()), Busy)
        self.assertIsInstance(error_of(401, json.dumps({"error": "no_token", "message": "m"}).encode()), Refused)
        self.assertIn("502", str(error_of(502, b"<html>")))

    def test_a_token_with_the_end_of_a_line_is_rejected(self) -> None:
        with self.assertRaisesRegex(ValueError, "end of a line"):
            _wire.headers("secret\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
