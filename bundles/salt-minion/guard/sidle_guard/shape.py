"""Whether this Salt calls the functions that the guard wraps: a wrapped function that nobody calls guards nothing."""

import types

# How a publication becomes a process, and how a child's return gets to the master: the function, what it must mention, and through how many
# other functions of the minion at most.
EXPECTED = (
    ("_handle_payload", "_handle_decoded_payload", 0),
    ("_handle_decoded_payload", "ProcessPayload(jid=", 3),
    ("_handle_decoded_payload", "subprocess_list", 3),
    ("_handle_decoded_payload", "SignalHandlingProcess", 3),
    ("_send_req_sync", "__master_req_channel_payload", 0),
    ("handle_event", "__master_req_channel_payload", 0),
    ("handle_event", "__schedule_return", 0),
)


def first_difference(minion_class):
    """The first thing that the guard expects and this Salt does not have; None: all is there."""
    for name, word, depth in EXPECTED:
        if not _mentions(minion_class, name, word, depth):
            return f"{word!r} in {minion_class.__module__}.{minion_class.__name__}.{name}"
    return None


def _mentions(owner, name, word, depth):
    function = getattr(owner, name, None)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    names, texts = set(), set()
    _collect(code, names, texts)
    if word in names or any(word in text for text in texts):
        return True
    helpers = [found for found in names if found != name and found in vars(owner)]
    return depth > 0 and any(_mentions(owner, helper, word, depth - 1) for helper in helpers)


def _collect(code, names, texts):
    """The names and texts in a function, and in the functions inside of it."""
    names.update(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str):
            texts.add(constant)
        elif isinstance(constant, (tuple, frozenset)):
            texts.update(part for part in constant if isinstance(part, str))
        elif isinstance(constant, types.CodeType):
            _collect(constant, names, texts)
