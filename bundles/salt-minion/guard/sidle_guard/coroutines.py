"""Salt's coroutines, whatever kind they are: 3006 uses Tornado's generators where 3008 has `async def`."""

import inspect

# A `before` gives this where Salt's own function is not to be called.
SKIP = object()
# Tornado's coroutines may yield an empty list where they would yield a future: it is done at once.
DONE = []


def around(guard, original, before, after=None):
    """Give a wrapper of a method. `before(self, …)` comes first; `after(its answer, result)` comes once Salt's function has done its work, also where
    that fails. `result()` is what the function gave; None: it failed. A job's child has Salt's own function."""

    async def later(self, *arguments, **options):
        if not guard.acts():
            return await original(self, *arguments, **options)
        answer, result = before(self, *arguments, **options), None
        if answer is SKIP:
            return None
        try:
            result = await original(self, *arguments, **options)
        finally:
            if after:
                after(answer, lambda: result)
        return result

    def at_once(self, *arguments, **options):
        if not guard.acts():
            return original(self, *arguments, **options)
        answer, done = before(self, *arguments, **options), DONE
        if answer is SKIP:
            return done
        try:
            done = original(self, *arguments, **options)
        finally:
            if after:
                when_done(done, lambda: after(answer, lambda: result_of(done)))
        return done

    return later if inspect.iscoroutinefunction(original) else at_once


def when_done(done, act):
    """Act once one of Salt's functions has done its work: now, or when its future says so."""
    if hasattr(done, "add_done_callback"):
        done.add_done_callback(lambda _: act())
    else:
        act()


def result_of(done):
    """Give the result of one of Salt's futures that is done; None: it failed, or is no future."""
    return done.result() if hasattr(done, "exception") and done.exception() is None else None


async def finish(done):
    """Wait for a function of Salt that may be a coroutine."""
    if inspect.isawaitable(done):
        await done
