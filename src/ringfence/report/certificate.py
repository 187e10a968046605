"""Certificates: what was released, what it cost for every dataset, and what was assumed, for an auditor."""

import hashlib
import json
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence import checks
from ringfence.accounting.decisions import DecisionAccountant
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import accountant_from_state_dict
from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, OWNER_ALONE, replacing
from ringfence.files.checkpoint import refuse_changed
from ringfence.files.shared_table import first_bytes
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import rounded_up
from ringfence.report.page import Pairs, Report, Section, Table, installed_versions, page, write_report
from ringfence.training.engine.run_file import RunFile

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
    "them. With the files and the key, ringfence certificate FILE --verify checks that this page is about "
    "them."
)

_COST = "The releases are (epsilon, delta)-differentially private for each of these pairs."
_ATTACKS = "With all other records and all releases, an attacker finds at most these shares."
_CHANGED = "it was changed, or made by another version"
_RELEASE = {"private", "delta", "cost", "sha256"}  # of ringfence release
_AS_GIVEN = "The file of this account has no checksum: that it is as it was written is taken on trust."
_PLANNED = "Every release was planned beforehand: none was chosen by looking at others."
_ALONG_THE_WAY = (
    "Epsilon is what was spent. Where releases were chosen by looking at earlier ones, it is the epsilon of "
    "the ledger's budget that holds."
)


@dataclass(frozen=True)
class Source:
    """A release or a run: its cost and its assumptions, none of which depends on private data.

    ``files`` are the private files that it was read from, and ``delta`` is theirs where they name one.

    >>> Source("A mean.", PrivacyLoss.of_pair(0.5, 0.0), ()).cost.steps
    1
    """

    what: str
    cost: PrivacyLoss
    files: tuple[Path, ...]
    settings: Pairs = ()
    assumptions: tuple[str, ...] = ()
    delta: float = 1e-5  # at which epsilon is stated unless another one is asked for


@dataclass(frozen=True)
class Certificate:
    """The content of a certificate as plain data, and the nonce of its commitments, which is private.

    >>> loss = PrivacyLoss.of_zcdp(0.125, 0.125)
    >>> made = Certificate.of(Source("A mean.", loss, ()), delta=1e-5)
    >>> round(made.content["mu"], 6), made.content["protects"]
    (0.5, 'every single record added or removed')
    """

    content: dict[str, Any]
    nonce: str

    @classmethod
    def of(cls, source: Source, delta: float | None = None, nonce: str | None = None) -> "Certificate":
        """The certificate of a source, with its epsilon at this delta, or at the source's own."""
        claim = source.cost.guarantee(source.delta if delta is None else delta)
        deltas = [at for at in _DELTAS if at > source.cost.taken]
        curve = [(at, source.cost.guarantee(at).epsilon) for at in deltas]
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
        path = Path(path)
        plain, key = path.with_suffix(".json"), path.with_suffix(".key")
        if path.suffix not in (".html", ".htm"):
            raise ValueError(f"--out must be the name of a page, such as certificate.html, got {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, value, mode in (
            (key, {"nonce": self.nonce}, OWNER_ALONE),
            (plain, self.content, AS_THE_SYSTEM_SAYS),
        ):
            with replacing(file, mode=mode) as opened:
                opened.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode())
        return [write_report(self.report(), path), plain, key]

    def report(self) -> Report:
        """The page: first the answer, then the curve, the attacks, and what it takes for granted."""
        content = self.content
        epsilon = rounded_up(content["epsilon"])
        mu = "not known" if content["mu"] is None else rounded_up(content["mu"])
        curve = tuple((f"{point['delta']:g}", rounded_up(point["epsilon"])) for point in content["curve"])
        rates = tuple(
            (f"{100 * rate['false_positive_rate']:g} %", f"{rounded_up(100 * rate['true_positive_rate'])} %")
            for rate in content["true_positive_rates"]
        )
        cost = Table("Epsilon at every delta", ("delta", "epsilon"), curve)
        attacks = Table("Attacks", ("false alarms", "records found, at most"), rates)
        files = Table("Commitments", ("file", "SHA-256"), tuple(content["commitments"].items()))
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
                Section("What it cost", (_COST,), tables=(cost,)),
                Section("What attacks can achieve", (_ATTACKS,), tables=(attacks,)),
                Section("What was assumed", tuple(content["assumptions"])),
                Section("Which files this is about", (KEPT,), tables=(files,)),
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
    shown, drawn = path.with_suffix(".html"), page(Certificate(content, nonce).report())
    if shown.exists() and shown.read_text(encoding="utf-8") != drawn:
        raise ValueError(f"{shown} does not say what {path} says: {_CHANGED}")


def _rounded(value: Any) -> Any:
    """Plain data with its numbers to nine digits, which other libraries may round differently."""
    return json.loads(json.dumps(value), parse_float=lambda text: f"{float(text):.9g}")


def read_source(path: str | Path) -> Source:
    """Reads a run of ``PrivacyEngine.save``, an account, or a file of ``Ledger``.

    An account is account.json of a ``Release``, or the ``state_dict`` of an accountant as JSON.

    Guarantee: of the private numbers in these files none is kept but those that hold for every dataset. The
    number of examples is not kept where another ``public_size`` was given, and no seed is.
    """
    path = Path(path)
    start = first_bytes(path)
    if path.suffix == ".journal":
        raise ValueError(f"{path} is the journal of a run: give the run itself, RUN.ckpt")
    if start[:1] == b"{":
        return _of_account(path)
    if start == b"SQLite":
        return _of_ledger(path)
    return _of_run(path)


def _of_run(path: Path) -> Source:
    file = RunFile(path)
    state = file.read()
    account = accountant_from_state_dict(file.spent(state)["account"])
    settings = state["settings"]
    numbers = sum(math.prod(shape) for shape in settings["parameters"].values())
    share = settings["batch_size"] / settings["public_size"]
    cut = f", at most {settings['max_batch_size']}" if "max_batch_size" in settings else ""
    batches = {
        "full": "all examples",
        "poisson": f"each example with probability {share:.6g}{cut}",
        "random_allocation": f"each example once in {math.ceil(1 / share):,} batches, drawn at random",
    }[settings["sampling"]]
    return Source(
        what=f"The {numbers:,} parameters of a trained model, after each of {account.steps:,} steps.",
        cost=account.privacy_loss(),
        files=(file.path, file.journal),
        settings=(
            ("mechanism", repr(Mechanism.from_state_dict(settings["mechanism"]))),
            ("clip", settings["clip"]),
            ("batches", batches),
            ("public size", f"{settings['public_size']:g}"),
            ("randomness", "secure releases" if settings["secure"] else "pseudorandom, from a seed"),
        ),
        assumptions=tuple(state["assumptions"]),
    )


def _of_ledger(path: Path) -> Source:
    with Ledger(path=path) as ledger:
        pass  # what it has read stays as it is
    budget = {name: getattr(ledger, name) for name in ("epsilon", "delta", "neighbours", "planned")}
    return Source(
        what="; ".join(entry.what for entry in ledger.entries) + ".",
        cost=ledger.total,
        files=(path,),
        settings=tuple((f"ledger: {name}", str(value)) for name, value in budget.items()),
        assumptions=(_PLANNED if ledger.planned else _ALONG_THE_WAY,),
        delta=ledger.delta,
    )


def _of_account(path: Path) -> Source:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON") from None
    if "kind" not in checks.mapping("account", state):
        return _of_release(path, state)
    decided = state["kind"] == "DecisionAccountant"
    account: Any = (DecisionAccountant.from_state_dict if decided else accountant_from_state_dict)(state)
    settings = [("account", repr(account))]
    if not decided:
        settings.append(("sensitivity", account.sensitivity.statement))
    what, cost = _releases(account.steps), account.privacy_loss()
    return Source(what, cost, (path,), tuple(settings), (_AS_GIVEN,))


def _of_release(path: Path, state: dict[str, Any]) -> Source:
    missing = sorted(_RELEASE - state.keys())
    if missing:
        raise ValueError(
            f"{path} is no account of ringfence 0.7 or later: it has no {', '.join(missing)}. Nothing in "
            "earlier ones tells whether they were changed: certify the ledger that was charged for it"
        )
    refuse_changed(path, state)
    cost = PrivacyLoss.from_state(state["cost"])
    return Source(
        what=state.get("statement", _releases(cost.steps)),
        cost=cost,
        files=(path,),
        assumptions=tuple(state["assumptions"]),
        delta=state["delta"],
    )


def _releases(number: int) -> str:
    return "One release." if number == 1 else f"{number:,} releases."
