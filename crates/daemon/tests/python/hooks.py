"""Nobody waits for a day to see that a wait ends."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("wait_ms"), (int, float)) and 50 < body["wait_ms"] <= 86_400_000:
        body["wait_ms"] = 50
