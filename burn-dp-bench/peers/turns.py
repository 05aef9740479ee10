"""Lets `cargo xtask bench peers` decide when a step is made, so that frameworks take turns."""

import json
import sys
import time

sys.stdout.reconfigure(line_buffering=True)


def resident_mib():
    """Returns the largest resident size of this process so far, in MiB, where Linux reports it."""
    try:
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
            return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return None


def serve(make_step, sync=lambda: None, device_mib=lambda: None):
    """Creates a step and makes it on command, until the standard input ends.

    After each line `steps N`, one step is made that is not counted, and then N steps; their
    milliseconds are printed as {"ms": [...], "device_mib": ...}, with the memory that the framework
    holds on a device, in MiB.
    """
    base_mib = resident_mib()
    step = make_step()
    print(json.dumps({"ready": True, "base_mib": base_mib}))
    for line in sys.stdin:
        command, count = line.split()
        if command != "steps":
            raise SystemExit(f"expected `steps N`, got {line!r}")
        times = []
        for index in range(1 + int(count)):
            sync()
            start = time.perf_counter()
            step()
            sync()
            if index > 0:
                times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"ms": times, "device_mib": device_mib()}))
