"""Binaries: the code of cases as it ran, stored by content, and which binary each case of a run used.

Code is signed when it is stored, and read again only if a trusted key has signed it (``perfsvc.keys``). So a person who
can write to the database cannot decide which code runs on the hosts that use it.
"""

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, select, update

from perfsvc.errors import NotMeasuredError, UntrustedError, UsageError
from perfsvc.keys import CHANGED, Keys, Signed
from perfsvc.model import PythonCode, ReplayRecord, digest
from perfsvc.model.codec import encode
from perfsvc.store.cases import CASE_COLUMNS, case_of, id_of_name, ids_of
from perfsvc.store.rows import BinaryRow, CaseBinary, CaseCode, CaseKey
from perfsvc.store.schema.column_types import stored
from perfsvc.store.schema.engine import Database, among, insert_new
from perfsvc.store.schema.environments import ENVIRONMENT, environment_of
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    BinaryFiles,
    Cases,
    Devices,
    Environments,
    Measurements,
    PythonCodes,
)

PART_BYTES = 1 << 14
"""How much of an artifact is decompressed at once while its digest is checked; at most 1032 times as much comes out."""

BUILT_WITH = "built with"
"""The role of what decides a binary besides its sources: folders of headers and variables of the environment."""


class BinaryStore:
    """Binaries; each method is one transaction."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

    def put(self, codes: Sequence[CaseCode]) -> list[int]:
        """Store the code that cases ran and return the ids of the binaries; equal records are stored once.

        Raises:
            KeyError: a module that a record names is missing.
            ValueError: bytes do not have the digest that a record names.
        """
        texts = [encode(code.record).decode() for code in codes]
        digests = {text: digest(text.encode()) for text in texts}
        ids: dict[str, int] = {}
        with self._database.writing() as connection:
            query = select(Binaries.digest, Binaries.id, Binaries.record, Binaries.signatures)
            query = query.where(among(Binaries.digest, set(digests.values())))
            stored = {row.digest: row for row in connection.execute(query)}
            # All writers store binaries in the same order, so that two writers cannot deadlock.
            for text, code in sorted(zip(texts, codes, strict=True), key=lambda pair: pair[0]):
                if text not in ids:
                    ids[text] = _put(connection, code, text, stored.get(digests[text]), self._keys)
        return [ids[text] for text in texts]

    def get(self, ids: Collection[int]) -> dict[int, BinaryRow]:
        """Return binaries by their ids, without their bytes; binaries that no trusted key has signed are absent."""
        files = select(BinaryFiles.binary_id, BinaryFiles.role, BinaryFiles.name, BinaryFiles.sha256)
        files = files.where(BinaryFiles.role.in_(("source", BUILT_WITH)))
        found: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
        with self._database.reading() as connection:
            files = files.where(among(BinaryFiles.binary_id, ids))
            for binary, role, name, sha256 in connection.execute(files):
                found[binary, role].add((name, sha256))
            records = connection.execute(
                select(Binaries.id, Binaries.record, Binaries.signatures).where(among(Binaries.id, ids))
            )
            return {
                binary: BinaryRow(
                    _record(text, f"binary {binary}"),
                    frozenset(found[binary, "source"]),
                    frozenset(found[binary, BUILT_WITH]),
                )
                for binary, text, signatures in records
                if self._keys.trusts(Signed.RECORD, text, signatures)
            }

    def of_run(self, run: int) -> dict[CaseKey, CaseBinary]:
        """Return the binary and the environment of each case of a run."""
        with self._database.reading() as connection:
            return _of_run(connection, self._keys, run)

    def of_cases(self, wanted: Collection[tuple[int, CaseKey]]) -> dict[tuple[int, CaseKey], CaseBinary]:
        """Return the binary and the environment of each pair of run and case; unmeasured pairs are absent."""
        keys: dict[int, set[CaseKey]] = defaultdict(set)
        for run, key in wanted:
            keys[run].add(key)
        with self._database.reading() as connection:
            ids = ids_of(connection, {case for _, (_, case, _) in wanted})
            binaries: dict[tuple[int, CaseKey], CaseBinary] = {}
            for run, of_run in keys.items():
                numbers = {ids[case] for _, case, _ in of_run if case in ids}
                measured = _of_run(connection, self._keys, run, among(Measurements.case_id, numbers))
                binaries |= {(run, key): measured[key] for key in of_run if key in measured}
        return binaries

    def used(self, keys: Collection[CaseKey], runs: Collection[int]) -> dict[CaseKey, dict[int, int]]:
        """Return the id of the binary that each case used in each run; absent if the case used none or several."""
        used: dict[tuple[int, str, str], dict[int, set[int | None]]] = defaultdict(lambda: defaultdict(set))
        with self._database.reading() as connection:
            ids = ids_of(connection, {case for _, case, _ in keys})
            measured = (Measurements.run_id, Measurements.case_id, Devices.uuid, Measurements.cache)
            query = (
                select(*measured, Measurements.binary_id)
                .join(Devices, Devices.id == Measurements.device_id)
                .where(among(Measurements.case_id, ids.values()), among(Measurements.run_id, runs))
                .distinct()
            )
            for run, number, uuid, cache, binary in connection.execute(query):
                used[number, uuid, cache][run].add(binary)
        binary_by_run: dict[CaseKey, dict[int, int]] = {}
        for uuid, case, cache in keys:
            if case in ids:
                of_case = binary_by_run[uuid, case, cache] = {}
                for run, (binary, *others) in used[ids[case], uuid, cache].items():
                    if binary is not None and not others:
                        of_case[run] = binary
        return binary_by_run

    def python_codes(self, ids: Collection[int]) -> dict[int, PythonCode]:
        """Return what Python functions ran with, by id; what no trusted key has signed is absent."""
        with self._database.reading() as connection:
            return _python_codes(connection, self._keys, ids)

    def modules(self, digests: Collection[str]) -> dict[str, bytes]:
        """Return the contents of stored files by their digests; a file that is missing or was changed is absent."""
        query = select(Artifacts.sha256, Artifacts.content).where(Artifacts.sha256.in_(digests))
        with self._database.reading() as connection:
            contents = {sha256: _content(sha256, content) for sha256, content in connection.execute(query)}
        return {sha256: content for sha256, content in contents.items() if content is not None}

    def files(self, binary: int, role: str) -> dict[str, bytes]:
        """Return the undamaged files that a binary has in a role, such as ``source`` or ``lines``, by name.

        Nobody has signed these files: they are for people to read, and no code may run from them.
        """
        query = (
            select(BinaryFiles.name, Artifacts.sha256, Artifacts.content)
            .join(Artifacts, Artifacts.sha256 == BinaryFiles.sha256)
            .where(BinaryFiles.binary_id == binary, BinaryFiles.role == role)
            .order_by(BinaryFiles.name)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        contents = {row.name: _content(row.sha256, row.content) for row in rows}
        return {name: content for name, content in contents.items() if content is not None}

    def python_modules(self, case_id: str, run: int, *, device: str | None = None) -> dict[str, str]:
        """Return the source text, by name, of each module that a case's Python functions imported in a run.

        Modules of installed packages are left out.

        Raises:
            UntrustedError: no trusted key has signed the list of the modules, or a text was changed.
        """
        modules = self.python_code(case_id, run, device=device).modules
        texts = self._all({sha256 for _, sha256 in modules}, f"{case_id} in run {run}") if modules else {}
        return {name: texts[sha256].decode() for name, sha256 in modules}

    def python_code(self, case_id: str, run: int, *, device: str | None = None) -> PythonCode:
        """Return what a case's Python functions ran with in a run; it is empty if that is not stored.

        Raises:
            UntrustedError: no trusted key has signed the record.
        """
        query = (
            select(PythonCodes.record, PythonCodes.signatures)
            .join(Measurements, Measurements.python_code_id == PythonCodes.id)
            .join(Devices, Devices.id == Measurements.device_id)
            .where(Measurements.run_id == run)
            .order_by(Measurements.id)
        )
        with self._database.reading() as connection:
            query = query.where(Measurements.case_id == id_of_name(connection, case_id))
            row = connection.execute(query if device is None else query.where(Devices.uuid == device)).first()
        if row is None:
            return PythonCode()
        self._keys.require(Signed.PYTHON, row.record, row.signatures, f"the Python code of {case_id} in run {run}")
        return _python_code(row.record)

    def replay(
        self, case_id: str, run: int, *, device: str | None = None
    ) -> tuple[ReplayRecord, dict[str, bytes], bytes]:
        """Return the replay record of a case in a run, its modules by digest, and its benchmark file.

        The method ``python_modules`` returns the Python modules that the benchmark file imports.

        Raises:
            NotMeasuredError: the run holds no binary of the case.
            UsageError: the case used several binaries, on several devices, and ``device`` does not choose one.
            UntrustedError: no trusted key has signed the code, or it was changed in the database.
        """
        with self._database.reading() as connection:
            query = (
                select(Binaries.id, Binaries.record, Binaries.signatures, Devices.uuid)
                .join(Measurements, Measurements.binary_id == Binaries.id)
                .join(Devices, Devices.id == Measurements.device_id)
                .where(Measurements.run_id == run, Measurements.case_id == id_of_name(connection, case_id))
                .order_by(Measurements.id)
            )
            rows = connection.execute(query if device is None else query.where(Devices.uuid == device)).all()
            if not rows:
                where = f" on {device}" if device else ""
                raise NotMeasuredError(
                    f"run {run} holds no binary of {case_id}{where}", cure=f"perfsvc show '{case_id}'"
                )
            devices = {row.uuid: row.id for row in rows}
            if len(set(devices.values())) > 1 and device is None:
                raise UsageError(
                    f"run {run} holds several binaries of {case_id}", cure=f"name one device of {list(devices)}"
                )
        name = f"{case_id} in run {run}"
        self._keys.require(Signed.RECORD, rows[0].record, rows[0].signatures, f"the code of {name}")
        record = _record(rows[0].record, name)
        files = self._all({*record.modules, record.bench}, name)
        return record, {sha256: files[sha256] for sha256 in record.modules}, files[record.bench]

    def _all(self, digests: Collection[str], name: str) -> dict[str, bytes]:
        """Return the stored bytes by digest; raise ``UntrustedError`` about ``name`` if any are missing or changed."""
        contents = self.modules(digests)
        if lacking := sorted(set(digests) - contents.keys()):
            raise UntrustedError(
                f"the file {lacking[0][:12]} of {name} is damaged in the database: it is missing or was changed",
                cure=CHANGED,
            )
        return contents


def put_artifact(connection: Connection, sha256: str, kind: str, content: bytes) -> None:
    """Store bytes under the digest of their content; do nothing if undamaged bytes are stored already."""
    stored = connection.scalar(select(Artifacts.content).where(Artifacts.sha256 == sha256))
    row = {"sha256": sha256, "kind": kind, "size_bytes": len(content), "content": zlib.compress(content)}
    if stored is None:
        insert_new(connection, Artifacts, row)
    elif _content(sha256, stored) is None:
        connection.execute(update(Artifacts).where(Artifacts.sha256 == sha256).values(row))


def put_python_code(
    connection: Connection, binary: int | None, code: PythonCode | None, files: Mapping[str, bytes], keys: Keys
) -> int | None:
    """Store a record of the Python code and packages that a case used; return the record's id, None without ``code``.

    ``files`` has the modules and cubins by digest. They are stored as files of ``binary``; without it, they are not
    stored.
    """
    if code is None:
        return None
    modules = {sha256 for _, sha256 in code.modules}
    for sha256 in sorted(files) if binary is not None else ():
        role = "python" if sha256 in modules else "cubin"
        put_artifact(connection, sha256, role, files[sha256])
        row = {"binary_id": binary, "role": role, "name": sha256, "sha256": sha256}
        insert_new(connection, BinaryFiles, row)
    return _put_signed(connection, PythonCodes, Signed.PYTHON, encode(code).decode(), keys)


def _put_signed(
    connection: Connection, table: type[Binaries] | type[PythonCodes], kind: Signed, text: str, keys: Keys
) -> int:
    """Store a record unless it is stored already, sign it with this user's key, and return its id."""
    name = digest(text.encode())
    query = select(table.id, table.record, table.signatures).where(table.digest == name)
    row = connection.execute(query).first()
    if row is None:
        insert_new(connection, table, {"digest": name, "record": text, "signatures": keys.sign(kind, text)})
        row = connection.execute(query).one()
    # Another host may have stored the row, or the row was changed since.
    if row.record != text or not keys.has_signed(kind, text, row.signatures):
        row = connection.execute(query.with_for_update()).one()
        signatures = keys.sign(kind, text, row.signatures)
        connection.execute(update(table).where(table.id == row.id).values(record=text, signatures=signatures))
    return int(row.id)


def _put(connection: Connection, code: CaseCode, text: str, stored: Any, keys: Keys) -> int:
    """Store a binary whose record has this text, unless it is stored and signed by this user, and return its id.

    ``stored`` is the row with the digest of the text; None if there is none.
    """
    record = code.record
    lines = [("lines", module, content) for module, content in code.lines.items()]
    if stored is not None and stored.record == text and keys.has_signed(Signed.RECORD, text, stored.signatures):
        _put_contents(connection, lines)  # the run that stored the binary may not have asked for them
        _put_files(connection, int(stored.id), lines)
        return int(stored.id)
    files = [("module", module, code.modules[module]) for module in dict.fromkeys(record.modules)]
    files.append(("bench", record.bench, code.bench))
    for role, sha256, content in files:
        if digest(content) != sha256:
            raise ValueError(f"the {role} {sha256} of {record.case.id} has other bytes than its digest says")
    files += [("source", path, content) for path, content in code.sources.items()]
    files += [(BUILT_WITH, name, content) for name, content in code.built_with.items()]
    files += lines
    _put_contents(connection, files)
    binary = _put_signed(connection, Binaries, Signed.RECORD, text, keys)
    _put_files(connection, binary, files)
    return binary


def _put_contents(connection: Connection, files: Sequence[tuple[str, str, bytes]]) -> None:
    """Store the contents of files, each with its role and its name."""
    # All writers store files in the same order, so that two writers cannot deadlock.
    for sha256, role, content in sorted((digest(content), role, content) for role, _, content in files):
        put_artifact(connection, sha256, role, content)


def _put_files(connection: Connection, binary: int, files: Sequence[tuple[str, str, bytes]]) -> None:
    """Store which files a binary has, each with its role and its name; the contents are stored already."""
    for role, name, content in files:
        row = {"binary_id": binary, "role": role, "name": name, "sha256": digest(content)}
        insert_new(connection, BinaryFiles, row)


def _of_run(connection: Connection, keys: Keys, run: int, *where: ColumnElement[bool]) -> dict[CaseKey, CaseBinary]:
    """Return the binary and the environment of the last replica of each case of a run.

    The Python code of a case is None if no trusted key has signed it.
    """
    later = Measurements.__table__.alias()
    same = (later.c[name] == getattr(Measurements, name) for name in ("run_id", "case_id", "device_id", "cache"))
    # By ids: a run has thousands of cases, and few environments and records of Python code.
    columns = (Measurements.binary_id, Measurements.environment_id, Measurements.python_code_id)
    rows = connection.execute(
        select(Measurements.case_id, Devices.uuid, Measurements.cache, *columns)
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id == run, *where)
        .where(~exists().where(*same, later.c.replica > Measurements.replica))
        .order_by(Measurements.case_id, Measurements.device_id, Measurements.cache)
    ).all()
    named = select(Cases.id, *CASE_COLUMNS).where(among(Cases.id, {row.case_id for row in rows}))
    cases = {number: case_of(*name) for number, *name in connection.execute(named)}
    query = select(Environments.id, *ENVIRONMENT)
    query = query.where(among(Environments.id, {row.environment_id for row in rows}))
    environments = {row.id: environment_of(row) for row in connection.execute(query)}
    codes = _python_codes(connection, keys, {row.python_code_id or 0 for row in rows})  # 0 is no id
    return {
        (uuid, cases[case], cache): CaseBinary(binary, environments[environment], codes.get(code or 0))
        for case, uuid, cache, binary, environment, code in rows
        if case in cases and environment in environments
    }


def _python_codes(connection: Connection, keys: Keys, ids: Collection[int]) -> dict[int, PythonCode]:
    """Return what Python functions ran with, by id; what no trusted key has signed is absent."""
    query = select(PythonCodes.id, PythonCodes.record, PythonCodes.signatures)
    rows = connection.execute(query.where(among(PythonCodes.id, ids))).all()
    return {
        number: _python_code(text) for number, text, signatures in rows if keys.trusts(Signed.PYTHON, text, signatures)
    }


def _record(text: str, name: str) -> ReplayRecord:
    return stored(ReplayRecord, text, f"the replay record of {name}")


@lru_cache(maxsize=256)
def _python_code(text: str) -> PythonCode:
    return stored(PythonCode, text, "what Python code ran with")


def _content(sha256: str, compressed: bytes) -> bytes | None:
    """Return the decompressed content of an artifact; None if its digest differs.

    Forged content may be thousands of times as large as its compressed form, so the digest is checked first, part by
    part.
    """
    found, stream = hashlib.sha256(), zlib.decompressobj()
    try:
        for start in range(0, len(compressed), PART_BYTES):
            found.update(stream.decompress(compressed[start : start + PART_BYTES]))
    except zlib.error:
        return None
    return zlib.decompress(compressed) if stream.eof and found.hexdigest() == sha256 else None
