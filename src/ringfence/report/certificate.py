"""One page for an auditor: what was released, what it cost for every dataset, and what was assumed."""

import hashlib
import json
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence import checks
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.costs.budget import composed_guarantee
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, OWNER_ALONE, replacing
from ringfence.numerics.rounding import rounded_up
from ringfence.report.certificate_source import Source
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.content import Report, Section, Table
from ringfence.report.versions import installed_versions

_DELTAS = tuple(10.0**-power for power in range(3, 11))
_RATES = (1e-3, 1e-2, 1e-1)
AUDIENCE = (
    "Everything on this page holds for every dataset, was not computed from private data and may be "
    "published. What releases cost the data at hand is not here: it is private."
)
CHOSEN = (
    "The number of releases, the noise, the bounds and the sensitivity were not chosen by looking at the "
    "data."
)
KEPT = (
    "A commitment is the SHA-256 of a secret nonce followed by the file. The nonce is in the .key file, "
    "which stays with the private files: a plain checksum would let anybody check a guess of what is in "
    "them. Whoever has both can verify that this page is about them: ringfence certificate FILE --verify."
)

_CHANGED = "it was changed, or made by another version"


@dataclass(frozen=True)
class Certificate:
    """The content of a certificate as plain data, and the nonce of its commitments, which is private.

    >>> from ringfence.accounting.costs.cost import Cost
    >>> made = Certificate.of(Source("A mean.", Cost(((0.5, 1.0, 1),), zcdp=0.125, steps=1), ()), delta=1e-5)
    >>> round(made.content["mu"], 6), made.content["protects"]
    (0.5, 'every single record added or removed')
    """

    content: dict[str, Any]
    nonce: str

    @classmethod
    def of(cls, source: Source, delta: float | None = None, nonce: str | None = None) -> "Certificate":
        """The certificate of a source, with its epsilon at this delta, or at the source's own."""
        claim = composed_guarantee(source.cost, source.delta if delta is None else delta)
        deltas = [at for at in _DELTAS if at > source.cost.taken]
        curve = [(at, composed_guarantee(source.cost, at).epsilon) for at in deltas]
        nonce = nonce or secrets.token_hex(32)
        content = {
            "format": "ringfence certificate",
            "version": 1,
            "released": source.what,
            "releases": source.cost.steps,
            "protects": f"every single record {source.cost.change or ADDED_OR_REMOVED}",
            "audience": AUDIENCE,
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "mu": claim.mu if claim.mu < math.inf else None,
            "advantage": claim.advantage,
            "true_positive_rates": [
                {"false_positive_rate": rate, "true_positive_rate": claim.true_positive_rate(rate)}
                for rate in _RATES
            ],
            "curve": [{"delta": at, "epsilon": epsilon} for at, epsilon in curve if epsilon < math.inf],
            "settings": dict(source.settings),
            "assumptions": [CHOSEN, *source.assumptions],
            "versions": dict(installed_versions()),
            "commitments": {path.name: committed(nonce, path) for path in source.files},
        }
        return cls(content, nonce)

    def write(self, path: str | Path) -> list[Path]:
        """Writes the page, JSON beside it, and a key that only its owner may read; returns the three."""
        from ringfence.report.page.page import write_report

        path = Path(path)
        plain, key = path.with_suffix(".json"), path.with_suffix(".key")
        if path in (plain, key):
            raise ValueError(f"--out must be the name of a page, such as certificate.html, got {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, value, mode in (
            (key, {"nonce": self.nonce}, OWNER_ALONE),
            (plain, self.content, AS_THE_SYSTEM_SAYS),
        ):
            with replacing(file, mode=mode) as opened:
                opened.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode())
        return [write_report(self.report(), path, publishable=True), plain, key]

    def report(self) -> Report:
        """The page: first the answer, then the curve, the attacks, and what it takes for granted."""
        content = self.content
        epsilon = rounded_up(content["epsilon"])
        mu = "not known" if content["mu"] is None else rounded_up(content["mu"])
        points = [(point["delta"], point["epsilon"]) for point in content["curve"]]
        line = Line("every dataset", tuple(at for at, _ in points), tuple(size for _, size in points))
        chart = Chart(
            "curve",
            "Epsilon at every delta",
            "The releases are (epsilon, delta)-differentially private at every marker of the curve.",
            (Panel("", "delta", "epsilon", (line,), x_log=True, y_from_zero=True),),
        )
        rates = tuple(
            (f"{100 * rate['false_positive_rate']:g} %", f"{rounded_up(100 * rate['true_positive_rate'])} %")
            for rate in content["true_positive_rates"]
        )
        files = tuple(content["commitments"].items())
        return Report(
            title="Privacy certificate",
            summary=(
                f"What was released satisfies ({epsilon}, {content['delta']:g})-differential privacy for "
                f"{content['protects']}: mu is {mu}, and no attack's true positive rate is more than "
                f"{rounded_up(content['advantage'])} above its false positive rate.",
                content["audience"],
            ),
            sections=(
                Section("What was released", (content["released"],)),
                Section("What it cost", charts=(chart,)),
                Section(
                    "What attacks can achieve",
                    ("Whoever knows all other records and sees all releases finds at most these shares.",),
                    tables=(Table("Attacks", ("false alarms", "records found, at most"), rates),),
                ),
                Section("What was assumed", tuple(content["assumptions"])),
                Section(
                    "Which files this is about",
                    (KEPT,),
                    tables=(Table("Commitments", ("file", "SHA-256"), files),),
                ),
            ),
            settings=tuple(content["settings"].items()),
            versions=tuple(content["versions"].items()),
        )


def committed(nonce: str, path: Path) -> str:
    """The commitment to a file: SHA-256 of the nonce and the file's bytes.

    >>> len(committed("00", Path(__file__)))
    64
    """
    return hashlib.sha256(bytes.fromhex(nonce) + path.read_bytes()).hexdigest()


def verify(certificate: str | Path, source: Source) -> None:
    """Raises a ValueError unless the certificate is about these files and says what they say.

    It is JSON with its key beside it. Everything in it is computed anew from the source, and the page beside
    it, if there is one, from the JSON.
    """
    from ringfence.report.page.page import page

    path = Path(certificate)
    try:
        content, key = (json.loads(path.with_suffix(end).read_text()) for end in (".json", ".key"))
    except ValueError:
        raise ValueError(f"{path} is not JSON, or its key is not") from None
    nonce = checks.mapping("key", key).get("nonce")
    expected = checks.mapping("certificate", content).get("commitments", {})
    if not isinstance(nonce, str) or not expected:
        raise ValueError(f"{path} is no certificate, or its key holds no nonce")
    for file in source.files:
        if expected.get(file.name) != committed(nonce, file):
            raise ValueError(f"{path} is not about {file} as it is now: the commitment differs")
    anew = Certificate.of(source, content.get("delta"), nonce)
    for name in sorted({*anew.content, *content} - {"versions"}):
        if _rounded(content.get(name)) != _rounded(anew.content.get(name)):
            theirs, ours = content.get(name), anew.content.get(name)
            raise ValueError(f"{path} says {name} {theirs!r}, and its source {ours!r}: {_CHANGED}")
    shown, drawn = path.with_suffix(".html"), page(Certificate(content, nonce).report(), publishable=True)
    if shown.exists() and shown.read_text(encoding="utf-8") != drawn:
        raise ValueError(f"{shown} does not say what {path} says: {_CHANGED}")


def _rounded(value: Any) -> Any:
    """Plain data with its numbers to nine digits, which other libraries may round differently."""
    return json.loads(json.dumps(value), parse_float=lambda text: f"{float(text):.9g}")
