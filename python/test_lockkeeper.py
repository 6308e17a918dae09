"""Tests of lockkeeper.py against a daemon: LOCKKEEPER_URL=http://127.0.0.1:7422 python3 test_lockkeeper.py"""

import os
import threading
import unittest
import uuid

from lockkeeper import Busy, Client, Error, Lost

URLS = os.environ["LOCKKEEPER_URL"].split(",")
# Far longer than anything takes, so that only what never happens is a failure.
LONG = 120.0


class Locks(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(URLS)
        self.name = f"python/{uuid.uuid4()}"

    def test_a_lock_is_had_and_given_up(self) -> None:
        with self.client.lock(self.name, wait=LONG, purpose="test") as hold:
            self.assertTrue(hold.valid)
            self.assertGreater(hold.fence, 0)
            (holder,) = self.client.describe(self.name)["holders"]
            self.assertEqual((holder["fence"], holder["purpose"]), (hold.fence, "test"))
            self.assertIsNone(self.client.try_lock(self.name))
            with self.assertRaises(Busy):
                self.client.lock(self.name, wait=0.05).acquire()
        self.assertFalse(hold.valid)
        following = self.client.try_lock(self.name)
        assert following is not None
        self.assertGreater(following.fence, hold.fence)
        self.assertTrue(following.release())
        self.assertFalse(following.release())
        self.assertEqual(self.client.locks(self.name), [])

    def test_one_after_the_other(self) -> None:
        inside, order = [], []

        def work() -> None:
            for _ in range(5):
                with Client(URLS).lock(self.name) as hold:
                    inside.append(1)
                    order.append((len(inside), hold.fence))
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
        told = threading.Event()
        with self.client.lock(self.name, wait=LONG, ttl=1.0, on_lost=lambda hold, reason: told.set()) as hold:
            # Longer than both its time to live and what the daemon's death would leave of it.
            self.assertFalse(told.wait(3.0), hold.reason)
            self.assertIsNone(self.client.try_lock(self.name))

    def test_a_lock_that_is_taken_away_is_lost(self) -> None:
        told = []
        with self.assertRaises(Lost):
            with self.client.lock(self.name, wait=LONG, on_lost=lambda hold, reason: told.append(reason)) as hold:
                self.assertEqual(len(self.client.force_release(self.name)), 1)
                self.assertTrue(hold.lost.wait(LONG))
                self.assertFalse(hold.valid)
        self.assertEqual(len(told), 1)
        with self.client.lock(self.name, wait=LONG):
            pass

    def test_sharing_and_permits(self) -> None:
        with self.client.shared(self.name, wait=LONG), self.client.shared(self.name, wait=LONG):
            self.assertIsNone(self.client.try_lock(self.name))
        with self.client.permit(self.name, 2, wait=LONG), self.client.permit(self.name, 2, wait=LONG):
            self.assertIsNone(self.client.permit(self.name, 2, wait=0).try_acquire())

    def test_what_happens_is_told(self) -> None:
        states = self.client.watch(self.name)
        with self.client.lock(self.name, wait=LONG) as hold:
            for state in states:
                if state["holders"]:
                    break
            self.assertEqual(state["holders"][0]["fence"], hold.fence)
        self.assertEqual(next(states)["holders"], [])

    def test_what_is_wrong_is_said(self) -> None:
        with self.assertRaises(Error) as refused:
            self.client.lock("x" * 600, wait=0).acquire()
        self.assertEqual((refused.exception.status, refused.exception.error), (422, "invalid"))
        self.assertTrue(self.client.status()["serves"])
        self.assertTrue(self.client.members())
        self.assertEqual(self.client.why(self.name)["chain"], [])
        with self.assertRaises(Error):
            Client("http://127.0.0.1:1").status()
        with self.assertRaises(ValueError):
            Client("127.0.0.1:7422")


if __name__ == "__main__":
    unittest.main(verbosity=2)
