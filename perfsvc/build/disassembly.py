"""Count the instructions of kernels with NVIDIA's disassembler, sort them by the work they do, and find some of them.

nvdisasm takes half a second to start, whatever its input. So all kernels of an architecture go to it in one file of
bare instructions.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from perfsvc.build.cache import Cache
from perfsvc.errors import NoDisassemblerError
from perfsvc.model import digest
from perfsvc.process import programs
from perfsvc.temporary import temporary_folder

INSTRUCTION_BYTES = 16
"""The same on every architecture since Volta."""
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")

LOCAL = "local"
CLASSES: Mapping[str, str] = {
    "global": "LD LDG ST STG RED REDG ATOM ATOMG CCTL CCTLL CCTLT",
    "shared": "LDS LDSM STS STSM ATOMS LDGSTS REDAS STAS LDT LDTM STT STTM",
    LOCAL: "LDL STL",
    "constant": "LDC LDCU ULDC",
    "bulk copy": "UBLKCP UBLKPF UBLKRED UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UTCCP UTCSHIFT",
    "texture": "TEX TLD TLD4 TMML TXD TXQ SUATOM SULD SURED SUST",
    "tensor": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA",
    "float64": "DADD DFMA DMUL DSETP DMNMX",
    "float32": "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD",
    "float16": "HADD2 HADD2_32 HFMA2 HFMA2_MMA HMUL2 HMUL2_32 HMNMX2 HSET2 HSETP2",
    "special": "MUFU",
    "conversion": "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND",
    "integer": (
        "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMMNMX IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP LEA LOP "
        "LOP3 LOP32I POPC SHF SHL SHR SGXT VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX MATCH QSPC VOTE "
        "VOTEU"
    ),
    "move": "CS2R CS2UR MOV MOV32I MOVM PLOP3 PRMT PSETP P2R R2P R2UR REDUX S2R S2UR SEL SHFL CREDUX",
    "barrier": (
        "ARRIVES B2R BAR CGABAR CGAERRBAR DEPBAR ENDCOLLECTIVE ERRBAR FENCE LDGDEPBAR MEMBAR R2B SYNCS UCGABAR_ARV "
        "UCGABAR_WAIT USETMAXREG UTCATOMSWS UTCBAR WARPGROUP WARPGROUPSET WARPSYNC ACQBULK ELECT"
    ),
    "control": (
        "BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL EXIT JMP JMX JMXU KILL LEPC NANOSLEEP PREEXIT PMTRIG RET RPCMOV "
        "RTT YIELD"
    ),
}
"""The opcodes of each class of work. Opcodes of the uniform datapath have one more U in front and the same class.

From NVIDIA's CUDA Binary Utilities, "Instruction Set Reference" (release 13.0), from Turing to Blackwell.
"""

OTHER = "other"
_CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}
_UNIFORM = "U"
_MOVE = ("IMAD.MOV", "UIMAD.MOV")
_FILLER = "NOP"


def count_classes(opcodes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return (class of work, number of instructions) for each class that occurs, in the order of ``CLASSES``.

    ``NOP`` does not count: it fills a kernel up to the next multiple of 128 bytes.

    Args:
        opcodes: the number of instructions of each opcode with its modifiers (``LDG.E.128``).
    """
    counts = dict.fromkeys([*CLASSES, OTHER], 0)
    for opcode, number in opcodes.items():
        if opcode.partition(".")[0] != _FILLER:
            counts[class_of(opcode)] += number
    return tuple((name, number) for name, number in counts.items() if number)


def class_of(opcode: str) -> str:
    """Return the class of work of an opcode such as ``LDG.E.128``; ``other`` for an unknown opcode."""
    if opcode.startswith(_MOVE):
        return "move"
    bare = opcode.partition(".")[0]
    return _CLASS_OF.get(bare) or _CLASS_OF.get(bare.removeprefix(_UNIFORM)) or OTHER


def _local_offsets(opcodes: Sequence[str]) -> list[int]:
    """Return the offsets in bytes of the loads and stores of local memory in a kernel."""
    return [number * INSTRUCTION_BYTES for number, opcode in enumerate(opcodes) if class_of(opcode) == LOCAL]


def find_nvdisasm() -> Path | None:
    """Find nvdisasm on PATH, in a CUDA toolkit, or in the ``nvidia-cuda-nvdisasm`` wheel."""
    return programs.find_cuda_program("nvdisasm")


class Disassembler:
    """Counts and finds the instructions of kernels with nvdisasm, and caches the results.

    Args:
        path: the path of nvdisasm.
        cache: where results are looked up and kept, by the digest of the instructions.

    Raises:
        NoDisassemblerError: nvdisasm cannot be run, or its output cannot be parsed; all methods raise it too.
    """

    def __init__(self, path: Path, cache: Cache) -> None:
        self._path = path
        self._cache = cache
        match = _VERSION.search(self._run("--version"))
        if match is None:
            raise NoDisassemblerError(f"{path} --version prints no version", cure="reinstall it")
        self.version = f"nvdisasm {match[1]}"
        self._architectures = frozenset(re.findall(r"'(SM\w+)'", self._run("--help")))

    def opcodes(self, architecture: str, kernels: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
        """Return how many instructions of each opcode (``LDG.E.128``) each kernel has, by the kernel's digest.

        Args:
            architecture: the architecture's name, such as ``sm_90``.
            kernels: the instructions of each kernel, by their digest.
        """
        return self._results("opcodes", architecture, kernels, lambda opcodes: dict(Counter(opcodes)))

    def local_accesses(self, architecture: str, kernels: Mapping[str, bytes]) -> dict[str, list[int]]:
        """Return the offsets in bytes of each kernel's loads and stores of local memory, by the kernel's digest.

        Args:
            architecture: the architecture's name, such as ``sm_90``.
            kernels: the instructions of each kernel, by their digest.
        """
        return self._results("local accesses", architecture, kernels, _local_offsets)

    def _results(
        self, kind: str, architecture: str, kernels: Mapping[str, bytes], result_of: Callable[[Sequence[str]], Any]
    ) -> dict[str, Any]:
        """Return a result for each kernel, by its digest: from the cache, or computed from the kernel's opcodes.

        Args:
            kind: the name of the result in the cache.
            architecture: the architecture's name.
            kernels: the instructions of each kernel, by their digest.
            result_of: computes a result that JSON can hold from the opcodes of a kernel in order.
        """
        keys = {name: digest(f"{kind} {architecture} {self.version} {name}".encode()) for name in kernels}
        cached = {name: self._cache.get(key) for name, key in keys.items()}
        results = {name: json.loads(text) for name, text in cached.items() if text is not None}
        new = {name: kernels[name] for name in kernels if name not in results}
        if new:
            opcodes = self._disassemble(architecture, b"".join(new.values()))
            for name, text in new.items():
                results[name] = result_of(list(islice(opcodes, len(text) // INSTRUCTION_BYTES)))
                self._cache.put(keys[name], json.dumps(results[name]).encode())
        return results

    def _disassemble(self, architecture: str, instructions: bytes) -> Iterator[str]:
        """Return the opcode of each instruction, in order; raise ``NoDisassemblerError`` if one is missing."""
        # nvdisasm decodes the extra instructions of SM90a only if the name is SM90a, and SM90a includes SM90.
        name = architecture.replace("sm_", "SM")
        name = f"{name}a" if f"{name}a" in self._architectures else name
        with temporary_folder() as folder:
            file = folder / "kernel.bin"
            file.write_bytes(instructions)
            printed = self._run("-json", "-ndf", "-b", name, str(file))
        try:
            _, functions = json.loads(printed)
            opcodes = [line["opcode"] for function in functions for line in function["sass-instructions"]]
        except (ValueError, KeyError, TypeError) as error:
            raise NoDisassemblerError(f"{self._path} printed no listing of instructions", cure="upgrade it") from error
        if len(opcodes) * INSTRUCTION_BYTES != len(instructions):
            raise NoDisassemblerError(f"{self._path} skipped instructions of {architecture}", cure="upgrade it")
        return iter(opcodes)

    def _run(self, *arguments: str) -> str:
        """Return what nvdisasm prints with these arguments; raise ``NoDisassemblerError`` if it fails."""
        try:
            finished = programs.run([str(self._path), *arguments], folder=Path.cwd())
        except OSError as error:
            raise NoDisassemblerError(f"{self._path} cannot be run: {error.strerror}", cure="reinstall it") from error
        if finished.code:
            raise NoDisassemblerError(f"{self._path} failed: {finished.output.strip()}", cure="upgrade it")
        return finished.output
