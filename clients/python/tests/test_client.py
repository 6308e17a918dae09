"""Tests of the blocking client against daemons: LOCKKEEPER_URL=http://127.0.0.1:7422 python3 test_client.py"""

import os
import socket
import threading
import time
import traceback
import unittest
import unittest.mock
import urllib.parse
import uuid
from typing import List, Tuple

from lockkeeper import Busy, Client, Error, Hold, Lost, Unreachable

URLS = os.environ["LOCKKEEPER_URL"].split(",")
# Far longer than anything takes, so that only what never happens is a failure.
LONG = 120.0


class LosingProxy:
    """A proxy in front of a daemon that loses the answer to the first request with `path` in its first line: the daemon has carried it out."""

    def __init__(self, url: str, path: str) -> None:
        daemon = urllib.parse.urlsplit(url)
        self._daemon = (daemon.hostname or "", daemon.port or 0)
        self._path = path.encode()
        self.lost = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # The client sends one request on each connection, and its body fits the first packets.
        with client, socket.create_connection(self._daemon) as daemon:
            request = client.recv(65536)
            while b"\r\n\r\n" not in request or len(request.split(b"\r\n\r\n", 1)[1]) < _length(request):
                request += client.recv(65536)
            loses = self._path in request.split(b"\r\n", 1)[0] and not self.lost.is_set()
            daemon.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer or len(answer.split(b"\r\n\r\n", 1)[1]) < _length(answer):
                more = daemon.recv(65536)
                if not more:
                    break
                answer += more
            if loses:
                self.lost.set()
            else:
                client.sendall(answer)


def _length(message: bytes) -> int:
    """The length of the body of an HTTP message."""
    for line in message.split(b"\r\n\r\n", 1)[0].lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


class Locks(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(URLS)
        self.name = f"python/{uuid.uuid4()}"

    def test_a_lock_is_had_and_given_up(self) -> None:
        with self.client.lock(self.name, wait=LONG, purpose="test") as hold:
            self.assertTrue(hold.valid)
            assert hold.fence is not None
            self.assertGreater(hold.fence, 0)
            (holder,) = self.client.describe(self.name)["holders"]
            self.assertEqual((holder["fence"], holder["purpose"]), (hold.fence, "test"))
            self.assertIsNone(self.client.try_lock(self.name))
            with self.assertRaises(Busy):
                self.client.lock(self.name, wait=0.05).acquire()
        self.assertFalse(hold.valid)
        following = self.client.try_lock(self.name)
        assert following is not None and following.fence is not None and hold.fence is not None
        self.assertGreater(following.fence, hold.fence)
        self.assertTrue(following.release())
        self.assertFalse(following.release())
        self.assertEqual(self.client.locks(self.name), [])

    def test_one_after_the_other(self) -> None:
        inside: List[int] = []
        order: List[Tuple[int, int]] = []

        def work() -> None:
            for _ in range(5):
                with Client(URLS).lock(self.name) as hold:
                    inside.append(1)
                    order.append((len(inside), hold.fence or 0))
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([count for count, _ in order], [1] * 20)
        fences = [fence for _, fence in order]
        self.assertEqual(fences, sorted(set(fences)))

    def test_a_hold_is_kept_alive(self) -> None:
        lost = threading.Event()
        with self.client.lock(self.name, wait=LONG, ttl=1.0, on_lost=lambda hold, reason: lost.set()) as hold:
            # Longer than its time to live, and than the rest of it after the daemon's death.
            self.assertFalse(lost.wait(3.0), hold.reason)
            self.assertIsNone(self.client.try_lock(self.name))

    def test_a_lock_that_is_taken_away_is_lost(self) -> None:
        lost: List[str] = []
        with self.assertRaises(Lost):
            with self.client.lock(self.name, wait=LONG, on_lost=lambda hold, reason: lost.append(reason)) as hold:
                self.assertEqual(len(self.client.force_release(self.name)), 1)
                self.assertTrue(hold.lost.wait(LONG))
                self.assertFalse(hold.valid)
        self.assertEqual(len(lost), 1)
        with self.client.lock(self.name, wait=LONG):
            pass

    def test_a_request_whose_answer_is_lost_is_carried_out_once(self) -> None:
        for path in ["/v1/sessions ", "/acquire ", "/release "]:
            with self.subTest(path=path):
                name = f"{self.name}{path.strip()}"
                proxy = LosingProxy(URLS[0], path)
                self.addCleanup(proxy.close)
                # The answer is lost at the first daemon, and the request sent again through the last one.
                client = Client([proxy.url, URLS[-1]])
                # If it left an orphan, the wait would end before the orphan does.
                hold = client.lock(name, wait=LONG, ttl=10 * LONG).acquire()
                self.assertTrue(hold.valid)
                (holder,) = self.client.describe(name)["holders"]
                self.assertEqual(holder["fence"], hold.fence)
                self.assertEqual(self.client.describe(name)["waiters"], [])
                self.assertTrue(hold.release())
                self.assertTrue(proxy.lost.is_set())
                with self.client.lock(name, wait=LONG):
                    pass

    def test_a_session_is_kept_alive_while_it_waits(self) -> None:
        got: List[Hold] = []
        with self.client.lock(self.name, wait=LONG):
            waiter = threading.Thread(target=lambda: got.append(self.client.lock(self.name, wait=LONG, ttl=3.0).acquire()))
            waiter.start()
            acquisitions: List[str] = []
            while not acquisitions:
                acquisitions = self._waiting()
            # Longer than its time to live.
            time.sleep(7.0)
            self.assertEqual(self._waiting(), acquisitions)
        waiter.join(LONG)
        self.assertTrue(got[0].release())

    def _waiting(self) -> List[str]:
        """The owners that wait for the lock."""
        return [waiter["acquisition"] for waiter in self.client.describe(self.name)["waiters"]]

    def test_a_hold_is_not_valid_after_its_machine_was_suspended(self) -> None:
        if not hasattr(time, "CLOCK_BOOTTIME"):
            self.skipTest("this system has no clock that counts suspend")
        read = time.clock_gettime
        with self.client.lock(self.name, wait=LONG) as hold:
            self.assertTrue(hold.valid)
            # CLOCK_MONOTONIC stands still in suspend.
            suspended = lambda clock: read(clock) + (3600 if clock == time.CLOCK_BOOTTIME else 0)  # noqa: E731
            with unittest.mock.patch("time.clock_gettime", suspended):
                self.assertFalse(hold.valid)

    def test_sharing_and_permits(self) -> None:
        with self.client.shared(self.name, wait=LONG), self.client.shared(self.name, wait=LONG):
            self.assertIsNone(self.client.try_lock(self.name))
        with self.client.permit(self.name, 2, wait=LONG) as permit, self.client.permit(self.name, 2, wait=LONG):
            self.assertIsNone(permit.fence)
            self.assertIsNone(self.client.permit(self.name, 2, wait=0).try_acquire())

    def test_what_happens_is_told(self) -> None:
        states = self.client.watch(self.name)
        with self.client.lock(self.name, wait=LONG) as hold:
            for state in states:
                if state["holders"]:
                    break
            self.assertEqual(state["holders"][0]["fence"], hold.fence)
        self.assertEqual(next(states)["holders"], [])

    def test_a_token_is_sent_in_plain_text_only_on_this_machine(self) -> None:
        for url in ["http://127.0.0.1:1", "http://localhost", "http://[::1]:1", "https://example.org"]:
            Client(url, token="secret")
        for url in ["http://10.0.0.1:7422", "http://example.org", "http://localhost.example.org", "http://[::]"]:
            with self.assertRaisesRegex(ValueError, "unencrypted"):
                Client(["http://127.0.0.1", url], token="secret")
            Client(url, token="secret", insecure_no_tls=True)
            Client(url)

    def test_no_error_shows_a_secret_of_a_url(self) -> None:
        for url in [
            "http://u:s3cr3t@h",
            "http://u:s3c/r3t@h",
            "http://u:s3c?r3t@h",
            "http://u:s3c#r3t@h",
            "http://u:s3cr3t",
            "http://s3cr3t@h",
            "http://h?token=s3cr3t",
            "http://h#s3cr3t",
            "http://[s3cr3t",
            "lockkeeper://token:s3cr3t@h",
            "s3cr3t",
        ]:
            with self.assertRaises(ValueError) as raised:
                Client(url)
            shown = "".join(traceback.format_exception_only(type(raised.exception), raised.exception))
            self.assertNotRegex(shown, "s3c|r3t")
            self.assertIsNone(raised.exception.__cause__)
            self.assertTrue(raised.exception.__suppress_context__ or raised.exception.__context__ is None)

    def test_what_is_wrong_is_said(self) -> None:
        with self.assertRaises(Error) as refused:
            self.client.lock("x" * 600, wait=0).acquire()
        self.assertEqual((refused.exception.status, refused.exception.error), (422, "invalid"))
        self.assertTrue(self.client.status()["serves"])
        self.assertTrue(self.client.members())
        self.assertEqual(self.client.why(self.name)["chain"], [])
        with self.assertRaises(Unreachable):
            Client("http://127.0.0.1:1").try_lock(self.name)
        with self.assertRaises(ValueError):
            Client("127.0.0.1:7422")


if __name__ == "__main__":
    unittest.main(verbosity=2)
