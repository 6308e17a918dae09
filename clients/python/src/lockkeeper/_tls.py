"""TLS settings."""

from __future__ import annotations

import ssl
from typing import Optional


def tls_context(context: Optional[ssl.SSLContext], ca: Optional[str], cert: Optional[str], key: Optional[str]) -> Optional[ssl.SSLContext]:
    """The settings for connections with https://; None for those of the system."""
    if context is not None:
        if ca is not None or cert is not None or key is not None:
            raise ValueError("pass either context, or ca, cert and key")
        return context
    if ca is None and cert is None and key is None:
        return None
    if key is not None and cert is None:
        raise ValueError("key needs cert")
    made = ssl.create_default_context(cafile=ca)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        made.load_cert_chain(cert, key)
    return made
