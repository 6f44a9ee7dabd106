# SPDX-License-Identifier: Apache-2.0
"""Sends requests to the server at random moments, and prints the latencies of the answers.

Usage: ask.py REQUESTS [PER_SECOND [PORT]]
"""
import asyncio
import random
import sys
import time

import aiohttp

TEXTS = ("You may ", "the Work", "License ", "copyright")


async def ask(session, url, text, answers):
    asked = time.monotonic()
    async with session.get(url, params={"text": text}) as answer:
        said = await answer.text()
    answers.append((time.monotonic() - asked, answer.ok, said))


async def main(requests, per_second="5", port="8080"):
    url, answers = f"http://127.0.0.1:{port}/complete", []
    random.seed(1)
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for number in range(int(requests)):
            group.create_task(ask(session, url, TEXTS[number % len(TEXTS)], answers))
            await asyncio.sleep(random.expovariate(float(per_second)))
    took = sorted(seconds * 1000 for seconds, _, _ in answers)
    failed = [text for _, ok, text in answers if not ok]
    print(f"{len(took)} answers, {len(failed)} failed{': ' + failed[0] if failed else ''}: "
          f"p50 {took[len(took) // 2]:.1f} ms, p99 {took[min(len(took) - 1, len(took) * 99 // 100)]:.1f} ms; "
          f"for example {answers[0][2]!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
