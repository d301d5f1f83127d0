# SPDX-License-Identifier: Apache-2.0
"""What an exception of a store means to the rank: a kind, and one line of text without secrets."""
from __future__ import annotations

import os
import re
import time
from typing import Any

BUSY = {429, 503}
LONGEST_WAIT_S = 60  # of a Retry-After
LASTS = {400, 401, 403, 405, 411, 413, 414, 501}
LOOKED = {
    "s3": "storage_options, AWS_ACCESS_KEY_ID, web identity, metadata of container and instance; not ~/.aws "
          "(aws configure export-credentials --format env)",
    "gs": "storage_options, GOOGLE_APPLICATION_CREDENTIALS, gcloud's default credentials, instance metadata",
    "az": "storage_options, AZURE_STORAGE_ACCOUNT_NAME and _KEY or _SAS_KEY, managed identity",
}


class Failure(Exception):
    """A request that ends with a kind that the rank knows: missing, changed, denied, busy, broken."""

    def __init__(self, kind: str, text: str, wait_ms: int = 0) -> None:
        super().__init__(text)
        self.kind, self.wait_ms = kind, wait_ms  # wait_ms: of "busy", what the store asks for; 0: it did not say


class Secrets:
    """Values that no text shows: of options and of variables whose names say so."""

    NAMES = re.compile(r"secret|token|pass|key|sas|cred|auth|sign", re.IGNORECASE)

    def __init__(self, options: Any) -> None:
        found: set[str] = {value for name, value in os.environ.items() if self.NAMES.search(name) and len(value) >= 8}
        self._collect(options, False, found)
        self.values = sorted(found, key=len, reverse=True)

    def _collect(self, value: Any, secret: bool, found: set[str]) -> None:
        if isinstance(value, dict):
            for name, one in value.items():
                self._collect(one, secret or bool(self.NAMES.search(name)), found)
        elif isinstance(value, str) and secret and len(value) >= 6:
            found.add(value)

    def hide(self, text: str) -> str:
        """Return the text without them, and without the queries of URLs."""
        text = re.sub(r"(https?://[^\s?]*)\?[^\s)]*", r"\1", text)
        for value in self.values:
            text = text.replace(value, "***")
        return text


def first_line(error: BaseException) -> str:
    """Return the store's own words in short: "GET at http://HOST: 403 Forbidden (AccessDenied, Access Denied)"."""
    text = str(error)
    words = re.split(r"\n\s*\nDebug source", text)[0]
    answers = re.findall(r"<(?:Code|Message)>([^<]*)</", words)
    line = re.sub(r":\s*(<\?xml|<Error|<).*", "", words, flags=re.DOTALL)
    line = line[line.rfind("Error performing ") + len("Error performing "):] if "Error performing " in line else line
    line = re.sub(r"^([A-Z]+) (https?://[^/\s]+)\S* in \S+ - (?:Server returned non-2xx status code: )?", r"\1 at \2: ", line)
    causes = re.findall(r"kind: (Connect|Timeout|Request|Decode|Interrupted)\b", text)
    system = re.findall(r'message: "([^"]*)"', text)
    more = [", ".join(answers), ", ".join(dict.fromkeys(causes)).lower(), system[-1] if system and not answers else ""]
    return " ".join((line.rstrip(" :") + "".join(f" ({one})" for one in more if one)).split()) or type(error).__name__


def wait_of(error: BaseException | None) -> int:
    """Return the milliseconds that a Retry-After asks for, of an answer whose headers an exception has; 0: none.

    aiohttp's and requests' exceptions, and botocore's have them; obstore's do not.
    """
    for _ in range(4):
        if error is None:
            break
        answer: Any = getattr(error, "response", None)
        if isinstance(answer, dict):
            answer = answer.get("ResponseMetadata", {}).get("HTTPHeaders")
        else:
            answer = getattr(error, "headers", None) or getattr(answer, "headers", None)
        found = next((str(answer[name]) for name in ("Retry-After", "retry-after") if name in answer), "") if answer else ""
        if found.strip().isdigit():
            return min(int(found), LONGEST_WAIT_S) * 1000
        if found:
            import email.utils  # rarely needed, and the process starts sooner
            try:
                left = email.utils.parsedate_to_datetime(found).timestamp() - time.time()
            except ValueError:
                return 0
            return max(0, min(int(left * 1000), LONGEST_WAIT_S * 1000))
        error = error.__cause__ or error.__context__
    return 0


def advice(scheme: str, text: str, status: int) -> str:
    """Return what to do, or nothing."""
    if "RequestTimeTooSkewed" in text:
        return "; the clock of this machine is wrong"
    if "ExpiredToken" in text or "TokenRefreshRequired" in text:
        return "; the credential has expired: give one that is renewed, or a new one"
    if "169.254." in text or "metadata" in text.lower():
        return f"; no credential in {LOOKED.get(scheme, 'storage_options')}"
    if status in (401, 403):
        return f"; may this credential do that? It is the first of: {LOOKED.get(scheme, 'storage_options')}"
    return "; is the region right (storage_options region=)?" if status == 301 or "PermanentRedirect" in text else ""


def failure_of(error: BaseException, scheme: str, secrets: Secrets) -> Failure:
    """Return the failure that an exception of obstore, fsspec or Python stands for."""
    if isinstance(error, Failure):
        return Failure(error.kind, secrets.hide(str(error)), error.wait_ms)
    text, name = str(error), type(error).__name__
    found = re.search(r"status code: (\d{3})", text)
    status = int(found[1]) if found else int(getattr(error, "status", 0) or 0)
    if status == 0 and "(code: AccessDenied)" in text:  # of one of many objects that a request removes
        status = 403
    line = first_line(error)
    if isinstance(error, FileNotFoundError) or status == 404:
        kind = "missing"
    elif status == 409:
        kind = "broken"
    elif name in ("PreconditionError", "AlreadyExistsError", "NotModifiedError") or isinstance(error, FileExistsError) or status == 412:
        kind = "changed"
    elif "non-partial" in text or "partial content" in text.lower():
        kind, line = "denied", f"the server answered a request for a range with the whole file (200), so it cannot be a home ({line})"
    elif status in BUSY or "SlowDown" in text:
        kind = "busy"
    elif status in LASTS or (300 <= status < 400) or name in (
            "PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "UnknownConfigurationKeyError", "InvalidPathError"):
        kind = "denied"
    elif "redirect without LOCATION" in text:  # S3 answers so for another region
        kind, line = "denied", f"{line}; is the region right (storage_options region=)?"
    elif "builder error" in text:
        kind, line = "denied", f'{line}: https is needed, unless storage_options have {{"client_options": {{"allow_http": True}}}}'
    elif isinstance(error, (PermissionError, ValueError, TypeError, NotImplementedError)) or "169.254." in text:
        kind = "denied"
    else:
        kind = "broken"
    more = advice(scheme, text, status) if kind == "denied" else ""
    return Failure(kind, secrets.hide(line + more), wait_of(error) if kind == "busy" else 0)
