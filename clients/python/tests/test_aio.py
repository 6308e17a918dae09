"""Tests of the asyncio client against daemons: LOCKKEEPER_URL=http://127.0.0.1:7422 python3 test_aio.py"""

from __future__ import annotations

import asyncio
import os
import unittest
import uuid

from lockkeeper import Busy, Lost, aio

URLS = os.environ["LOCKKEEPER_URL"].split(",")
# Far longer than any step takes, so that only a hang fails.
LONG = 120.0


class Locks(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = aio.Client(URLS)
        self.name = f"aio/{uuid.uuid4()}"

    async def asyncTearDown(self) -> None:
        await self.client.close()

    async def test_a_lock_is_acquired_and_released(self) -> None:
        async with self.client.lock(self.name, wait=LONG, purpose="test") as hold:
            self.assertTrue(hold.valid)
            (holder,) = (await self.client.describe(self.name))["holders"]
            self.assertEqual((holder["fence"], holder["purpose"]), (hold.fence, "test"))
            self.assertIsNone(await self.client.try_lock(self.name))
            with self.assertRaises(Busy):
                await self.client.lock(self.name, wait=0.05).acquire()
        self.assertFalse(hold.valid)
        self.assertFalse(await hold.release())

    async def test_one_after_the_other(self) -> None:
        inside, fences = 0, []

        async def work() -> None:
            nonlocal inside
            for _ in range(5):
                async with self.client.lock(self.name) as hold:
                    inside += 1
                    self.assertEqual(inside, 1)
                    fences.append(hold.fence or 0)
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(*(work() for _ in range(4)))
        self.assertEqual(fences, sorted(set(fences)))
        self.assertEqual(len(fences), 20)

    async def test_a_loss_cancels_the_block_and_nothing_after_it(self) -> None:
        with self.assertRaises(Lost):
            async with self.client.lock(self.name, wait=LONG):
                await self.client.force_release(self.name)
                await asyncio.sleep(10 * LONG)
        # The task itself is not cancelled.
        await asyncio.sleep(0)

    async def test_a_loss_does_not_cancel_if_the_caller_does_not_want_it(self) -> None:
        with self.assertRaises(Lost):
            async with self.client.lock(self.name, wait=LONG, cancel_on_loss=False) as hold:
                await self.client.force_release(self.name)
                await asyncio.wait_for(hold.lost.wait(), LONG)

    async def test_a_cancellation_by_others_is_not_swallowed(self) -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with self.client.lock(self.name, wait=LONG):
                entered.set()
                await asyncio.sleep(10 * LONG)

        task = asyncio.ensure_future(work())
        await asyncio.wait_for(entered.wait(), LONG)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        # The lock was released.
        async with self.client.lock(self.name, wait=LONG):
            pass

    async def test_an_error_of_the_block_is_raised(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with self.client.lock(self.name, wait=LONG):
                raise ZeroDivisionError

    async def test_a_watch_shows_changes(self) -> None:
        states = self.client.watch(self.name)
        async with self.client.lock(self.name, wait=LONG) as hold:
            async for state in states:
                if state["holders"]:
                    self.assertEqual(state["holders"][0]["fence"], hold.fence)
                    break
        self.assertEqual((await states.__anext__())["holders"], [])
        await states.aclose()  # type: ignore[attr-defined]


if __name__ == "__main__":
    unittest.main(verbosity=2)
