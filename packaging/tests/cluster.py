"""Functions that the checks of the packaging share: requests to daemons, and waiting for conditions."""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request

# Much longer than any correct step takes: it ends a check that would wait for ever.
LONGEST_S = 120


def request(url, token=None, body=None):
    """Status and text of a reply. The certificate is not verified, as by a probe of Kubernetes; None if there is no reply."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body).encode()
    try:
        sent = urllib.request.Request(url, data=body, headers=headers)
        with urllib.request.urlopen(sent, context=unverified, timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return None, str(error)


def wait_for(what, condition):
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + LONGEST_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            sys.exit(f"FAILED: {what}: not within {LONGEST_S} s")
        time.sleep(0.1)
