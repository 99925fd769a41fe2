"""What kind of work an instruction of a GPU (SASS) does.

By the opcodes of NVIDIA's CUDA Binary Utilities, "Instruction Set Reference" (release 13.0), from Turing to Blackwell.
"""

from collections.abc import Mapping

CLASSES: Mapping[str, str] = {
    "global": "LD LDG ST STG RED REDG ATOM ATOMG CCTL CCTLL CCTLT",
    "shared": "LDS LDSM STS STSM ATOMS LDGSTS REDAS STAS LDT LDTM STT STTM",
    "local": "LDL STL",
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
"""The opcodes of each class; those of the uniform datapath begin with another U and count with the others."""

OTHER = "other"
_CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}
_UNIFORM = "U"
_MOVE = ("IMAD.MOV", "UIMAD.MOV")
_FILLING = "NOP"


def count(opcodes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """How many instructions there are of each class, by the order of ``CLASSES``; a class without any is absent.

    ``NOP`` is no instruction: it fills a kernel up to the next multiple of 128 bytes.

    Args:
        opcodes: how many there are of each, with its modifiers: ``LDG.E.128``.
    """
    found = dict.fromkeys([*CLASSES, OTHER], 0)
    for opcode, number in opcodes.items():
        if opcode.partition(".")[0] != _FILLING:
            found[_class_of(opcode)] += number
    return tuple((name, number) for name, number in found.items() if number)


def _class_of(opcode: str) -> str:
    if opcode.startswith(_MOVE):
        return "move"
    bare = opcode.partition(".")[0]
    return _CLASS_OF.get(bare) or _CLASS_OF.get(bare.removeprefix(_UNIFORM)) or OTHER
