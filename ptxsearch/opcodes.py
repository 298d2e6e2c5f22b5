"""SASS opcodes by the low 12 bits of an instruction, for each architecture family calibrated.

Recorded from nvdisasm 13.5's listings of some 115 kernels for sm_80, 86, 89, 90a, 100a, 103a,
120a and 121a, made by ptxas 13.0 with -O0, -O1 and -O3: within a family every code had one
mnemonic. `tests/test_sass.py` compares again. A key lists the families (sm_80 to sm_89 are 8, ...)
in which a code was seen.
"""

from __future__ import annotations

_SEEN = {
    "8 9 10 12": """
        ARRIVES:9b0 ATOM:38b,98a ATOMG:3a9,9a8 ATOMS:38c,38d,f8c B2R:31c BAR:51d,91d,b1d
        BMSK:21b BPT:95c BRA:947 BREAK:942 BREV:301 BRX:949 BSSY:945 BSYNC:941 CALL:944
        CCTL:98f CS2R:805 DADD:229,429 DEPBAR:91a DFMA:22b,42b,82b DMMA:23f DMUL:228,828
        DSETP:22a ERRBAR:9ab EXIT:94d F2F:304,310 F2FP:23e F2I:305,311 F2IP:243 FADD:221,421
        FCHK:302 FFMA:223,423,823 FLO:300 FMNMX:209,809 FMUL:220,820 FRND:307,313
        FSEL:208,808 FSET:20a FSETP:20b,80b HADD2:230,430 HFMA2:231 HMMA:23c HMNMX2:240
        HMUL2:232 HSET2:233 HSETP2:234 I2F:306,312,d12 I2FP:245 I2I:238 I2IP:239 IABS:213
        IADD3:210,810,c10 IDP:226 IMAD:224,225,227,824,825,827,c24,c25,e24 IMMA:237
        ISETP:20c,80c,c0c LD:980 LDC:b82 LDG:981 LDGDEPBAR:9af LDGSTS:fae LDL:983 LDS:984
        LDSM:83b LEA:211,811,c11 LOP3:212,812,c12 MATCH:3a1 MEMBAR:992 MOV:202,802,c02
        MOVM:23a MUFU:308,908 NANOSLEEP:95d NOP:918 P2R:803 PLOP3:81c PMTRIG:801 POPC:309
        PRMT:216,816 QSPC:3aa REDUX:3c4 RET:950 S2R:919 S2UR:9c3 SEL:207,807 SGXT:21a,81a
        SHF:219,819 SHFL:389,589,989,f89 ST:985 STG:986 STL:387 STS:388,988 UFLO:2bd
        UIADD3:290,890 UIMAD:2a4,2a5,8a5 UISETP:88c ULEA:291,891 ULOP3:892 UMOV:882,c82
        USHF:899 VOTE:806 VOTEU:886 WARPSYNC:348,948 YIELD:946
    """,
    "8 9 10": """
        I2F:906 IMAD:424 SEL:c07 VABSDIFF:214,414 VABSDIFF4:215
    """,
    "9 10 12": """
        ACQBULK:82e ATOM:38a ATOMG:9a3 ATOMS:98c CALL:343 CGAERRBAR:5ab DFMA:e2b DMUL:c28
        ELECT:82f ENDCOLLECTIVE:91b F2FP:c3e FADD:e21 FENCE:3c6 FFMA:c23 FMUL:c20 I2FP:c45
        LEPC:94e PREEXIT:82d R2UR:2ca REDAS:dbe REDG:98e,9a6 ST:385 STSM:844
        SYNCS:5a7,5b2,9a7,9b1 UBLKCP:3ba UBLKRED:3bb UCGABAR_ARV:9c7 UCGABAR_WAIT:dc7
        UTMACCTL:9b9 UTMACMDFLUSH:9b7 UTMALDG:5b4 VIADD:236 VIMNMX:248,848
    """,
    "10 12": """
        ATOMS:58d BRA:547 HFMA2:431,831 LDCU:7ac LDG:97e STG:97f UISETP:28c UPLOP3:89c
    """,
    "8 12": """
        IMNMX:217 QMMA:27a
    """,
    "8 9": """
        BMMA:23d HFMA2:235,435,835 ULDC:ab9
    """,
    "9 10": """
        VIADD:836,c36 VIADDMNMX:446
    """,
    "10": """
        FADD2:24b FFMA2:249 FMNMX3:276 LDTM:9ee STTM:9ed UTCATOMSWS:5e3,9e3 UTCBAR:3e9
        UTCCP:9e7 UTCHMMA:5ea UVIRTCOUNT:84c
    """,
    "12": """
        IADD:235,835,c35 IDP:c26 MOV:402 MUFU:d08 PRMT:416 RPCMOV:352,353 SEL:407,607,e07
        STL:987 UI2F:85a UIADD3:297,897 UMOV:482
    """,
    "8": """
        DFMA:62b DMUL:a28 F2FP:a3e FADD:621 FFMA:a23 FMUL:a20 I2F:b06 I2FP:a45 IADD3:a10
        IMAD:624,625,a24,a25 IMNMX:817 ISETP:a0c LEA:a11 LOP3:a12 MOV:a02 R2UR:3c2 RED:98e
        ULOP3:292 WARPSYNC:b48
    """,
    "9": """
        HGMMA:9f0 IGMMA:9f1 QGMMA:9f3 WARPGROUP:9c5
    """,
}


def _by_family() -> dict[int, dict[int, str]]:
    tables: dict[int, dict[int, str]] = {}
    for families, listing in _SEEN.items():
        for word in listing.split():
            name, codes = word.split(":")
            for family in map(int, families.split()):
                table = tables.setdefault(family, {})
                table |= {int(code, 16): name for code in codes.split(",")}
    return tables


OPCODES = _by_family()
