"""Binaries: the code of cases as it ran, stored by content, and which binary each case of a run used."""

import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, select
from sqlalchemy.orm import aliased

from perfsvc.errors import DatabaseError, NotMeasuredError, UsageError
from perfsvc.model import Environment, PythonCode, ReplayRecord, digest
from perfsvc.model.codec import decode, encode
from perfsvc.store.cases import lineage_of, lineages_of, namesakes_of, of_cases, present_cases
from perfsvc.store.rows import BinaryRow, CaseBinary, CaseCode, CaseKey
from perfsvc.store.schema.engine import Database, among, insert_new
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


class BinaryStore:
    """Binaries; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, codes: Sequence[CaseCode]) -> list[int]:
        """Store the code of cases as it ran and return the ids of the binaries; equal records are stored once.

        Raises:
            KeyError: a module that a record names is missing.
            ValueError: bytes do not have the digest that a record names.
        """
        with self._database.writing() as connection:
            return [_put(connection, code) for code in codes]

    def get(self, ids: Collection[int]) -> dict[int, BinaryRow]:
        """Return binaries by their ids, without their bytes."""
        files = select(BinaryFiles.binary_id, BinaryFiles.name, BinaryFiles.sha256).where(BinaryFiles.role == "source")
        sources: dict[int, set[tuple[str, str]]] = defaultdict(set)
        with self._database.reading() as connection:
            files = files.where(among(connection, BinaryFiles.binary_id, ids))
            for binary, name, sha256 in connection.execute(files):
                sources[binary].add((name, sha256))
            records = connection.execute(
                select(Binaries.id, Binaries.record).where(among(connection, Binaries.id, ids))
            )
            return {
                binary: BinaryRow(_record(text, f"binary {binary}"), frozenset(sources[binary]))
                for binary, text in records
            }

    def of_run(self, run: int) -> dict[CaseKey, CaseBinary]:
        """Return the binary and the environment of each case of a run."""
        with self._database.reading() as connection:
            return _of_run(connection, run)

    def of_cases(self, wanted: Collection[tuple[int, CaseKey]]) -> dict[tuple[int, CaseKey], CaseBinary]:
        """Return the binary and the environment of each pair of run and case; unmeasured pairs are absent."""
        keys: dict[int, set[CaseKey]] = defaultdict(set)
        for run, key in wanted:
            keys[run].add(key)
        with self._database.reading() as connection:
            ids = namesakes_of(connection, {case for _, (_, case, _) in wanted})
            binaries: dict[tuple[int, CaseKey], CaseBinary] = {}
            for run, of_run in keys.items():
                names = {number for _, case, _ in of_run for number in ids.get(case, ())}
                measured = _of_run(connection, run, among(connection, Measurements.case_id, names))
                binaries |= {(run, key): measured[key] for key in of_run if key in measured}
        return binaries

    def used(self, keys: Collection[CaseKey], runs: Collection[int]) -> dict[CaseKey, dict[int, int]]:
        """Return, by case and run, the id of the binary that the case used; absent if it used none or several."""
        used: dict[tuple[int, str, str], dict[int, set[int | None]]] = defaultdict(lambda: defaultdict(set))
        with self._database.reading() as connection:
            lineages = lineages_of(connection, {case for _, case, _ in keys})
            query = (
                select(Measurements.run_id, Cases.lineage_id, Devices.uuid, Measurements.cache, Measurements.binary_id)
                .join(Cases, Cases.id == Measurements.case_id)
                .join(Devices, Devices.id == Measurements.device_id)
                .where(among(connection, Cases.lineage_id, lineages.values()), Measurements.run_id.in_(runs))
                .distinct()
            )
            for run, lineage, uuid, cache, binary in connection.execute(query):
                used[lineage, uuid, cache][run].add(binary)
        binary_by_run: dict[CaseKey, dict[int, int]] = {}
        for uuid, case, cache in keys:
            if case in lineages:
                of_case = binary_by_run[uuid, case, cache] = {}
                for run, (binary, *others) in used[lineages[case], uuid, cache].items():
                    if binary is not None and not others:
                        of_case[run] = binary
        return binary_by_run

    def modules(self, digests: Collection[str]) -> dict[str, bytes]:
        """Return the bytes of compiled modules by the digests that replay records name."""
        query = select(Artifacts.sha256, Artifacts.content).where(Artifacts.sha256.in_(digests))
        with self._database.reading() as connection:
            return {sha256: _whole(sha256, content) for sha256, content in connection.execute(query)}

    def python_modules(self, case_id: str, run: int, *, device: str | None = None) -> dict[str, str]:
        """Return the source texts, by name, of the modules outside packages that a case's Python functions imported."""
        query = (
            select(PythonCodes.record)
            .join(Measurements, Measurements.python_code_id == PythonCodes.id)
            .join(Cases, Cases.id == Measurements.case_id)
            .join(Devices, Devices.id == Measurements.device_id)
            .where(Measurements.run_id == run)
            .order_by(Cases.name != case_id, Measurements.id)
        )
        with self._database.reading() as connection:
            query = query.where(Cases.lineage_id == lineage_of(connection, case_id))
            record = connection.scalar(query if device is None else query.where(Devices.uuid == device))
        if record is None:
            return {}
        modules = _python_code(record).modules
        texts = self.modules({sha256 for _, sha256 in modules})
        return {name: texts[sha256].decode() for name, sha256 in modules}

    def replay(
        self, case_id: str, run: int, *, device: str | None = None
    ) -> tuple[ReplayRecord, dict[str, bytes], bytes]:
        """Return a case's replay record, its modules by digest and its benchmark file, as it ran.

        The Python modules that the benchmark file imports are in ``python_modules``.

        Raises:
            NotMeasuredError: the run holds no binary of the case.
            UsageError: the case used several binaries, on several devices, and ``device`` does not choose one.
        """
        with self._database.reading() as connection:
            query = (
                select(Binaries.id, Binaries.record, Devices.uuid)
                .join(Measurements, Measurements.binary_id == Binaries.id)
                .join(Cases, Cases.id == Measurements.case_id)
                .join(Devices, Devices.id == Measurements.device_id)
                .where(Measurements.run_id == run, Cases.lineage_id == lineage_of(connection, case_id))
                .order_by(Cases.name != case_id, Measurements.id)
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
            record = _record(rows[0].record, f"{case_id} in run {run}")
            query_files = (
                select(Artifacts.sha256, Artifacts.content)
                .join(BinaryFiles, BinaryFiles.sha256 == Artifacts.sha256)
                .where(BinaryFiles.binary_id == rows[0].id, BinaryFiles.role.in_(("module", "bench")))
            )
            files = {sha256: _whole(sha256, content) for sha256, content in connection.execute(query_files)}
        return record, {sha256: files[sha256] for sha256 in record.modules}, files[record.bench]


def put_artifact(connection: Connection, sha256: str, kind: str, content: bytes) -> None:
    """Store bytes under the digest of their content, unless they are stored already."""
    if connection.scalar(select(Artifacts.sha256).where(Artifacts.sha256 == sha256)) is None:
        row = {"sha256": sha256, "kind": kind, "size_bytes": len(content), "content": zlib.compress(content)}
        insert_new(connection, Artifacts, row)


def put_python_code(
    connection: Connection, binary: int | None, code: PythonCode | None, files: Mapping[str, bytes]
) -> int | None:
    """Store what a case's Python functions ran with, and return its id; None if ``code`` is None.

    ``files`` has the modules and cubins by digest; they are stored as files of the binary, if there is one.
    """
    if code is None:
        return None
    modules = {sha256 for _, sha256 in code.modules}
    for sha256 in sorted(files) if binary is not None else ():
        role = "python" if sha256 in modules else "cubin"
        put_artifact(connection, sha256, role, files[sha256])
        row = {"binary_id": binary, "role": role, "name": sha256, "sha256": sha256}
        insert_new(connection, BinaryFiles, row)
    text = encode(code)
    query = select(PythonCodes.id).where(PythonCodes.digest == digest(text))
    stored = connection.scalar(query)
    if stored is None:
        insert_new(connection, PythonCodes, {"digest": digest(text), "record": text.decode()})
        stored = connection.scalar(query)
    return stored


def damaged(what: str) -> DatabaseError:
    """Return the error for stored content that cannot be read."""
    return DatabaseError(
        f"{what} is damaged in the database", cure="restore a backup (docs/how-to/keep-the-database.md)"
    )


def _put(connection: Connection, code: CaseCode) -> int:
    """Store a binary, unless this or another process has stored it, and return its id."""
    record = code.record
    text = encode(record)
    query = select(Binaries.id).where(Binaries.digest == digest(text))
    stored = connection.scalar(query)
    if stored is not None:
        return stored
    files = [("module", module, code.modules[module]) for module in dict.fromkeys(record.modules)]
    files.append(("bench", record.bench, code.bench))
    for role, sha256, content in files:
        if digest(content) != sha256:
            raise ValueError(f"the {role} {sha256} of {record.case.id} has other bytes than its digest says")
    files += [("source", path, content) for path, content in code.sources.items()]
    for sha256, role, content in sorted((digest(content), role, content) for role, _, content in files):
        put_artifact(connection, sha256, role, content)  # in one order everywhere, so that two writers cannot deadlock
    insert_new(connection, Binaries, {"digest": digest(text), "record": text.decode()})
    binary = connection.execute(query).scalar_one()
    for role, name, content in files:
        insert_new(
            connection, BinaryFiles, {"binary_id": binary, "role": role, "name": name, "sha256": digest(content)}
        )
    return binary


def _of_run(connection: Connection, run: int, *where: ColumnElement[bool]) -> dict[CaseKey, CaseBinary]:
    """Return the binary and the environment of the last replica of each case of a run."""
    later = aliased(Measurements)
    same = (getattr(later, name) == getattr(Measurements, name) for name in ("run_id", "case_id", "device_id", "cache"))
    rows: Sequence[Any] = connection.execute(
        of_cases(
            Measurements,
            Measurements.binary_id,
            Environments.driver,
            Environments.toolkit,
            Environments.power_limit_w,
            PythonCodes.record.label("python"),
        )
        .join(Environments, Environments.id == Measurements.environment_id)
        .outerjoin(PythonCodes, PythonCodes.id == Measurements.python_code_id)
        .where(Measurements.run_id == run, *where)
        .where(~exists().where(*same, later.replica > Measurements.replica))
    ).all()
    cases = present_cases(rows)
    return {
        (row.uuid, cases[row.case_id], row.cache): CaseBinary(
            row.binary_id,
            Environment(row.driver, row.toolkit, row.power_limit_w),
            None if row.python is None else _python_code(row.python),
        )
        for row in rows
    }


def _record(text: str, name: str) -> ReplayRecord:
    """Decode a stored replay record; ``name`` names it in the ``DatabaseError`` if it is damaged."""
    try:
        return decode(ReplayRecord, text)
    except ValueError as error:
        raise damaged(f"the replay record of {name}") from error


@lru_cache(maxsize=256)
def _python_code(text: str) -> PythonCode:
    """Decode what Python functions ran with; raises ``DatabaseError`` if it is damaged."""
    try:
        return decode(PythonCode, text)
    except ValueError as error:
        raise damaged("what Python code ran with") from error


def _whole(sha256: str, compressed: bytes) -> bytes:
    """Return the decompressed content of an artifact; raises ``DatabaseError`` if it does not have its digest."""
    try:
        content = zlib.decompress(compressed)
    except zlib.error as error:
        raise damaged(f"the artifact {sha256}") from error
    if digest(content) != sha256:
        raise damaged(f"the artifact {sha256}")
    return content
